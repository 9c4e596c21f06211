// GELU in its tanh form, written with the logistic function: 0.5 z (1 + tanh u) = z · logistic(2u). One exponential
// and one reciprocal an element, and no cancellation where tanh is close to -1.
#include "cuda/column_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/sums.cuh"
#include "ops/arguments.h"

namespace megatron {

namespace {

constexpr float kLog2E = 1.44269504f;
constexpr float kLinear = 1.59576912f;             // 2 sqrt(2/pi)
constexpr float kCubic = 1.59576912f * 0.044715f;  // so that 2u = z (kLinear + kCubic z²)

/// The exponent of 2 that makes e^(-2u).
__device__ __forceinline__ float exponent_of_minus_2u(float z) {
  return -z * (kLinear * kLog2E + kCubic * kLog2E * z * z);
}

__device__ __forceinline__ float gelu(float z) {
  return __fdividef(z, 1.0f + ptx::exp2_approximately(exponent_of_minus_2u(z)));
}

__device__ __forceinline__ float gelu_derivative(float z) {
  // 1 - s as e · s: subtracting would leave an error that z³ makes large. Past 2^115, s is 0 in effect.
  const float e = ptx::exp2_approximately(fminf(exponent_of_minus_2u(z), 115.0f));
  const float s = __fdividef(1.0f, 1.0f + e);
  return s + s * (e * s) * z * (kLinear + 3.0f * kCubic * z * z);
}

template <int width, class T>
__device__ __forceinline__ Vector<float, width> load_optional(const T* bias, std::int64_t column) {
  return bias == nullptr ? Vector<float, width>{} : load_floats<width>(bias + column);
}

template <class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  if (!tile.inside()) return;
  const auto bias_values = load_optional<width>(bias, tile.column);
  tile.template for_each_row<4>([&](std::int64_t at) { return load_vector<width>(x + at); },
                                [&](std::int64_t at, std::int64_t, const Vector<T, width>& loaded) {
                                  auto z = to_floats(loaded);
                                  for (int i = 0; i < width; ++i)
                                    z.values[i] = gelu(z.values[i] + bias_values.values[i]);
                                  store_floats(y + at, z);
                                });
}

/// Gradients of one element of `width` columns.
template <class T, int width>
struct BackwardInputs {
  Vector<T, width> dy, x;
};

/// partial: [gridDim.y, columns] sums of dx as f32, or null.
template <class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    backward_kernel(const T* dy, const T* x, const T* bias, T* dx, float* partial, std::int64_t rows,
                    std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  Vector<float, width> sums{};
  if (tile.inside()) {
    const auto bias_values = load_optional<width>(bias, tile.column);
    using Inputs = BackwardInputs<T, width>;
    tile.template for_each_row<2>(
        [&](std::int64_t at) {
          return Inputs{load_vector<width>(dy + at), load_vector<width>(x + at)};
        },
        [&](std::int64_t at, std::int64_t, const Inputs& loaded) {
          auto gradient = to_floats(loaded.dy);
          const auto z = to_floats(loaded.x);
          for (int i = 0; i < width; ++i) {
            gradient.values[i] *= gelu_derivative(z.values[i] + bias_values.values[i]);
            sums.values[i] += gradient.values[i];
          }
          store_floats(dx + at, gradient);
        });
  }
  if (partial != nullptr) tile.store_sums(sums, partial + blockIdx.y * columns);
}

}  // namespace

void CudaOps::bias_gelu_forward(const BiasGeluForwardArgs& args) {
  with_activation_type("bias_gelu_forward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const T* x = elements_of<T>("bias_gelu_forward", args.x, size.elements());
    const T* bias = optional_elements_of<T>("bias_gelu_forward", args.bias, size.columns);
    T* y = elements_of<T>("bias_gelu_forward", args.y, size.elements());
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, x, bias, y);
    const auto kernel = vectors ? forward_kernel<T, Vector<T>::size> : forward_kernel<T, 1>;
    const LaunchShape shape =
        column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1, device_.multiprocessors(), 1);
    launch(stream_, shape, kernel, x, bias, y, size.rows, size.columns);
  });
}

void CudaOps::bias_gelu_backward(const BiasGeluBackwardArgs& args) {
  with_activation_type("bias_gelu_backward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const std::int64_t columns = size.columns;
    const T* dy = elements_of<T>("bias_gelu_backward", args.dy, size.elements());
    const T* x = elements_of<T>("bias_gelu_backward", args.x, size.elements());
    const T* bias = optional_elements_of<T>("bias_gelu_backward", args.bias, columns);
    T* dx = elements_of<T>("bias_gelu_backward", args.dx, size.elements());
    float* dbias = optional_elements_of<float>("bias_gelu_backward", args.dbias, columns);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(columns, dy, x, bias, dx);
    const auto kernel = vectors ? backward_kernel<T, Vector<T>::size> : backward_kernel<T, 1>;
    const LaunchShape shape = column_tile_shape(size.rows, columns, vectors ? Vector<T>::size : 1,
                                                device_.multiprocessors(), dbias == nullptr ? 1 : 8);
    float* partial = dbias == nullptr ? nullptr : float_scratch(shape.grid.y * columns);
    launch(stream_, shape, kernel, dy, x, bias, dx, partial, size.rows, columns);
    if (dbias != nullptr) add_slices(stream_, partial, shape.grid.y, columns, dbias);
  });
}

}  // namespace megatron
