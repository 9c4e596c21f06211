// Two parts of a row mixed by weights that the row decides: a warp has a row. And noise of rows: a thread has a vector.
#include "backend/ops/mixed_rows_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"
#include "cuda/philox.cuh"

namespace megatron {

namespace {

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// Factors of the parts of a row; `slope` is the derivative of b's weight by its logit.
struct RowWeights {
  float a, b, slope;
};

template <class T>
__device__ __forceinline__ RowWeights weights_of(const MixedRows<T>& at, std::int64_t row) {
  const bool two = at.logits_each == 2;
  const auto logit = [&](std::int64_t i) {
    return at.logits[row * at.logits_each + i] + (at.bias == nullptr ? 0.0f : to_wide(at.bias[i]));
  };
  const float x = two ? logit(1) - logit(0) : logit(0);
  const float b = sigmoid(x), rest = sigmoid(-x);
  return {two ? rest : 1.0f, b, b * rest};
}

/// Calls body(element) for the elements of a row where each of the lane's vectors begins.
template <int width, class Body>
__device__ __forceinline__ void for_each_vector_of(std::int64_t row, std::int64_t columns, const Body& body) {
  constexpr std::int64_t step = kWarpThreads * width;
#pragma unroll 4
  for (std::int64_t column = threadIdx.x % kWarpThreads * width; column < columns; column += step) {
    body(row * columns + column);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) mix_kernel(MixRowsForwardShape<T> at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows) return;
  const RowWeights weights = weights_of<T>(at, row);
  for_each_vector_of<width>(row, at.columns, [&](std::int64_t element) {
    auto values = load_floats<width>(at.a + element);
    const auto others = load_floats<width>(at.b + element);
    for (int i = 0; i < width; ++i) values.values[i] = weights.a * values.values[i] + weights.b * others.values[i];
    store_floats(at.y + element, values);
  });
}

template <int width, class T>
__device__ __forceinline__ void scale_row(std::int64_t row, std::int64_t columns, const T* x, float factor, T* y) {
  for_each_vector_of<width>(row, columns, [&](std::int64_t element) {
    auto values = load_floats<width>(x + element);
    for (int i = 0; i < width; ++i) values.values[i] *= factor;
    store_floats(y + element, values);
  });
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) mix_back_kernel(MixRowsBackwardShape<T> at) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= at.rows) return;
  const bool two = at.logits_each == 2;
  const RowWeights weights = weights_of<T>(at, row);
  float sum = 0;
  for_each_vector_of<width>(row, at.columns, [&](std::int64_t element) {
    const auto gradients = load_floats<width>(at.dy + element);
    auto values = load_floats<width>(at.b + element);
    if (two) {
      const auto others = load_floats<width>(at.a + element);
      for (int i = 0; i < width; ++i) values.values[i] -= others.values[i];
    }
    for (int i = 0; i < width; ++i) sum += gradients.values[i] * values.values[i];
  });
  const float gradient = weights.slope * warp_sum(sum);  // after which every lane has read a and b
  if (threadIdx.x % kWarpThreads == 0) {
    if (two) at.dlogits[2 * row] = -gradient;
    at.dlogits[row * at.logits_each + at.logits_each - 1] = gradient;
  }
  if (two) scale_row<width>(row, at.columns, at.dy, weights.a, at.da);
  scale_row<width>(row, at.columns, at.dy, weights.b, at.db);
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads) jitter_kernel(JitterRowsShape<T> at) {
  static_assert(width <= 8, "one call of Philox has eight draws");
  const std::int64_t each = at.columns / width, count = at.rows * each;
  for (std::int64_t i = first_element(); i < count; i += element_stride()) {
    const std::int64_t row = i / each, column = i % each * width, element = row * at.columns + column;
    auto values = load_floats<width>(at.x + element);
    if (at.positions != nullptr) {
      const uint4 words =
          philox_words({static_cast<std::uint32_t>(column / 8), at.position_of(row), 0, at.sample_of(row)}, at.key);
      for (int j = 0; j < width; ++j) {
        values.values[j] *= at.factor(draw_of(words, static_cast<unsigned>(column % 8) + static_cast<unsigned>(j)));
      }
    }
    if (at.accumulate) {
      const auto before = load_floats<width>(at.y + element);
      for (int j = 0; j < width; ++j) values.values[j] += before.values[j];
    }
    store_floats(at.y + element, values);
  }
}

}  // namespace

void CudaOps::mix_rows_forward(const MixRowsForwardArgs& args) {
  with_activation_type("mix_rows_forward", args.b.dtype(), [&]<class T>(T) {
    const MixRowsForwardShape<T> at(args);
    if (at.rows * at.columns == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.a, at.b, at.y);
    launch(stream_, warp_rows_shape(at.rows), vectors ? mix_kernel<T, Vector<T>::size> : mix_kernel<T, 1>, at);
  });
}

void CudaOps::mix_rows_backward(const MixRowsBackwardArgs& args) {
  with_activation_type("mix_rows_backward", args.b.dtype(), [&]<class T>(T) {
    const MixRowsBackwardShape<T> at(args);
    if (at.rows * at.columns == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.a, at.b, at.dy, at.da, at.db);
    launch(stream_, warp_rows_shape(at.rows), vectors ? mix_back_kernel<T, Vector<T>::size> : mix_back_kernel<T, 1>,
           at);
  });
}

void CudaOps::jitter_rows(const JitterRowsArgs& args) {
  with_activation_type("jitter_rows", args.x.dtype(), [&]<class T>(T) {
    const JitterRowsShape<T> at(args);
    if (at.rows * at.columns == 0) return;
    const bool vectors = vectorizable<T>(at.columns, at.x, at.y);
    launch(stream_, elementwise_shape(at.rows * at.columns, vectors ? Vector<T>::size : 1),
           vectors ? jitter_kernel<T, Vector<T>::size> : jitter_kernel<T, 1>, at);
  });
}

}  // namespace megatron
