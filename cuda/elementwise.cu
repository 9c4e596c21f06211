#include <algorithm>
#include <cmath>

#include "backend/ops/arguments.h"
#include "base/core/philox.h"
#include "cuda/column_tile.cuh"
#include "cuda/cuda_check.h"
#include "cuda/cuda_ops.h"

namespace megatron {

namespace {

/// Calls body with a zero of the element type of a float dtype.
template <class Body>
void with_float_type(const char* verb, DType type, const Body& body) {
  if (type == DType::f64) return body(double{});
  with_activation_type(verb, type, body);
}

/// Elements of a vector in which the largest of the types has 16 bytes.
template <class... Types>
constexpr int kWidth = 16 / static_cast<int>(std::max({sizeof(Types)...}));

template <class T, int widest>
__global__ void __launch_bounds__(kBlockThreads) fill_kernel(T* y, T value, std::int64_t n) {
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    Vector<T, width> values;
    for (int i = 0; i < width; ++i) values.values[i] = value;
    store_global(y + at, values);
  });
}

template <class From, class To, int widest>
__global__ void __launch_bounds__(kBlockThreads)
    convert_kernel(const From* __restrict__ x, To* __restrict__ y, std::int64_t n) {
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto from = load_vector<width>(x + at);
    if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
      Vector<To, width> to;
      for (int i = 0; i < width; ++i) to.values[i] = to_type<To>(from.values[i]);
      store_global(y + at, to);
    } else {
      store_floats(y + at, to_floats(from));
    }
  });
}

template <class T, int widest>
__global__ void __launch_bounds__(kBlockThreads) add_kernel(const T* x, T* y, std::int64_t n) {
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto addend = load_vector<width>(x + at);
    auto sum = load_vector<width>(y + at);
    for (int i = 0; i < width; ++i) sum.values[i] = to_type<T>(to_wide(sum.values[i]) + to_wide(addend.values[i]));
    store_global(y + at, sum);
  });
}

template <class T, int widest, class Factor>
__global__ void __launch_bounds__(kBlockThreads) scale_kernel(T* y, Factor factor, std::int64_t n) {
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    auto values = load_vector<width>(y + at);
    for (int i = 0; i < width; ++i) values.values[i] = to_type<T>(to_wide(values.values[i]) * factor);
    store_global(y + at, values);
  });
}

/// Element `element` of the variates: Box and Muller's radius and angle from a pair of words of Philox. Radius: word 0
/// as u in (0, 1]; angle: word 1 as a fraction of a turn.
__device__ __forceinline__ float normal_variate(std::uint64_t element, std::uint64_t key, float deviation) {
  const std::uint64_t call = element / 4;
  const PhiloxCounter words =
      philox4x32<7>({static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32), 0, 0}, key);
  const bool second_pair = element % 4 >= 2;
  const std::uint32_t word0 = second_pair ? words[2] : words[0], word1 = second_pair ? words[3] : words[1];
  const float u = static_cast<float>(word0) * 0x1p-32f + 0x1p-33f;
  const float radius = deviation * sqrtf(-2.0f * logf(u));
  float sine, cosine;
  sincospif(static_cast<float>(static_cast<std::int32_t>(word1)) * 0x1p-31f, &sine, &cosine);
  return radius * (element % 2 == 0 ? cosine : sine);
}

struct NormalBox {
  std::int64_t first_element, global_columns;
  std::uint64_t key;
  float deviation;
};

/// Once a run, so nothing is shared between the four variates of a call.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    normal_kernel(NormalBox box, T* y, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<1> tile(rows, columns);
  if (!tile.inside()) return;
  struct Nothing {};
  tile.template for_each_row<1>(
      [](std::int64_t, std::int64_t) { return Nothing{}; },
      [&](std::int64_t at, std::int64_t row, Nothing) {
        const std::int64_t element = box.first_element + row * box.global_columns + tile.column;
        y[at] = ptx::from_float<T>(normal_variate(static_cast<std::uint64_t>(element), box.key, box.deviation));
      });
}

}  // namespace

void CudaOps::normal(const NormalArgs& args) {
  with_activation_type("normal", args.y.dtype(), [&]<class T>(T) {
    const RowsOf size(args.y);
    T* y = elements_of<T>("normal", args.y, size.elements());
    internal_check(
        args.first_row >= 0 && args.first_column >= 0 && args.first_column + size.columns <= args.global_columns,
        "normal: the box is outside its matrix", args.first_row, args.first_column, size.columns, args.global_columns);
    if (size.elements() == 0) return;
    const NormalBox box{.first_element = args.first_row * args.global_columns + args.first_column,
                        .global_columns = args.global_columns,
                        .key = args.key,
                        .deviation = args.deviation};
    launch(stream_, column_tile_shape(size.rows, size.columns, 1, device_.multiprocessors(), 1), normal_kernel<T>, box,
           y, size.rows, size.columns);
  });
}

void CudaOps::fill(Tensor y, double value) {
  internal_check(y.contiguous(), "fill");
  const std::int64_t n = y.elements();
  const auto fill_with = [&]<class T>(T element) {
    T* to = static_cast<T*>(y.data());
    const bool vectors = aligned(to);
    launch(stream_, elementwise_shape(n, vectors ? kWidth<T> : 1),
           vectors ? fill_kernel<T, kWidth<T>> : fill_kernel<T, 1>, to, element, n);
  };
  if (n == 0) return;
  if (y.dtype() == DType::i32) {
    fill_with(static_cast<std::int32_t>(value));
  } else if (y.dtype() == DType::u8) {
    fill_with(static_cast<std::uint8_t>(value));
  } else {
    with_float_type("fill", y.dtype(), [&]<class T>(T) { fill_with(narrow<T>(value)); });
  }
}

void CudaOps::read(ConstTensor x, void* host) {
  internal_check(x.contiguous(), "read");
  if (x.elements() > 0) device_.copy_to_host(host, x.data(), x.bytes());
}

void CudaOps::copy(ConstTensor x, Tensor y) {
  internal_check(x.elements() == y.elements() && x.contiguous() && y.contiguous(), "copy", x.shape(), y.shape());
  const std::int64_t n = x.elements();
  if (n == 0) return;
  if (x.dtype() == y.dtype()) {
    CUDA_CHECK(cudaMemcpyAsync(y.data(), x.data(), x.bytes(), cudaMemcpyDeviceToDevice, stream_));
    return;
  }
  with_float_type("copy", x.dtype(), [&]<class From>(From) {
    with_float_type("copy", y.dtype(), [&]<class To>(To) {
      if constexpr (!std::is_same_v<From, To>) {
        constexpr int width = kWidth<From, To>;
        const bool vectors = aligned(x.as<From>(), y.as<To>());
        launch(stream_, elementwise_shape(n, vectors ? width : 1),
               vectors ? convert_kernel<From, To, width> : convert_kernel<From, To, 1>, x.as<From>(), y.as<To>(), n);
      }
    });
  });
}

void CudaOps::add(ConstTensor x, Tensor y) {
  const std::int64_t n = y.elements();
  with_float_type("add", y.dtype(), [&]<class T>(T) {
    const T* from = elements_of<T>("add", x, n);
    T* to = elements_of<T>("add", y, n);
    if (n == 0) return;
    const bool vectors = aligned(from, to);
    launch(stream_, elementwise_shape(n, vectors ? kWidth<T> : 1),
           vectors ? add_kernel<T, kWidth<T>> : add_kernel<T, 1>, from, to, n);
  });
}

void CudaOps::scale(Tensor y, double factor) {
  const std::int64_t n = y.elements();
  with_float_type("scale", y.dtype(), [&]<class T>(T) {
    T* to = elements_of<T>("scale", y, n);
    using Factor = std::conditional_t<std::is_same_v<T, double>, double, float>;
    if (n == 0) return;
    const bool vectors = aligned(to);
    launch(stream_, elementwise_shape(n, vectors ? kWidth<T> : 1),
           vectors ? scale_kernel<T, kWidth<T>, Factor> : scale_kernel<T, 1, Factor>, to, static_cast<Factor>(factor),
           n);
  });
}

}  // namespace megatron
