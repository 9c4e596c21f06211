// Cross entropy over a vocabulary: a block has a row of the logits, which it reads once, in place and without ever
// storing probabilities.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/ops/arguments.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

constexpr float kLog2E = 1.44269504f;
constexpr int kBatch = 4;  ///< vectors of a row that a thread loads together

__device__ __forceinline__ float exp_of_difference(float x, float maximum) {
  return ptx::exp2_approximately((x - maximum) * kLog2E);
}

/// How many of the local columns are in the vocabulary; the rest is padding.
std::int64_t real_columns(std::int64_t columns, std::int64_t first_column, std::int64_t vocab_size) {
  return std::clamp<std::int64_t>(vocab_size - first_column, 0, columns);
}

/// sum = the sum of exp(x - maximum) over what was seen.
struct OnlineSum {
  float maximum = -INFINITY, sum = 0;

  /// The sum, for a maximum not below this one's. Equal ones, infinite ones too, need no factor.
  __device__ float relative_to(float larger) const {
    return maximum == larger ? sum : sum * exp_of_difference(maximum, larger);
  }
  template <int width>
  __device__ void add(const Vector<float, width>& values) {
    float larger = maximum;
    for (int i = 0; i < width; ++i) larger = values.values[i] > larger ? values.values[i] : larger;
    if (larger > maximum) {
      sum = relative_to(larger);
      maximum = larger;
    }
    const float finite = maximum == -INFINITY ? 0.0f : maximum;  // values of -infinity count 0, NaN stays NaN
    for (int i = 0; i < width; ++i) sum += exp_of_difference(values.values[i], finite);
  }
};

/// Rows of `columns` elements, of which the first `count` are in the vocabulary.
struct RowSize {
  int columns, count;
};

/// For the thread's pieces of the row: use(column, values) with `width` elements each.
template <int width, class T, class Use>
__device__ __forceinline__ void for_each_piece(const T* row, int end, const Use& use) {
  const int step = kBlockThreads * width;
  for (int column = static_cast<int>(threadIdx.x) * width; column < end; column += kBatch * step) {
    Vector<T, width> loaded[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (column + i * step < end) loaded[i] = load_vector<width>(row + column + i * step);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (column + i * step < end) use(column + i * step, to_floats(loaded[i]));
    }
  }
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads)
    local_kernel(const T* logits, const std::int32_t* targets, std::int64_t first_column, RowSize size, float* maximum,
                 float* sum_exp, float* target_logit) {
  __shared__ float partial_maximum[kWarpThreads], partial_sum[kWarpThreads];
  const std::int64_t row = blockIdx.x;
  const T* values = logits + row * size.columns;
  OnlineSum seen;
  for_each_piece<width>(values, size.count, [&](int column, const Vector<float, width>& piece) {
    if (column + width <= size.count) {
      seen.add(piece);
    } else {
      for (int i = 0; i < width; ++i) {
        if (column + i < size.count) seen.add(Vector<float, 1>{{piece.values[i]}});
      }
    }
  });
  const float larger = block_maximum(seen.maximum, partial_maximum);
  const float sum = block_sum(seen.relative_to(larger), partial_sum);
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[row] - first_column;
  maximum[row] = larger;
  sum_exp[row] = sum;
  target_logit[row] = target >= 0 && target < size.count ? to_wide(values[target]) : 0.0f;
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads)
    backward_kernel(T* logits, const std::int32_t* targets, std::int64_t first_column, RowSize size,
                    const float* maximum, const float* sum_exp, const float* weights, float scale) {
  const std::int64_t row = blockIdx.x;
  T* values = logits + row * size.columns;
  const float factor = weights != nullptr ? weights[row] * scale : scale;
  const float probability_factor = factor / sum_exp[row], row_maximum = maximum[row];
  const std::int64_t global_target = targets[row] - first_column;
  const int target = global_target >= 0 && global_target < size.count ? static_cast<int>(global_target) : -1;
  for_each_piece<width>(values, size.columns, [&](int column, Vector<float, width> piece) {
    for (int i = 0; i < width; ++i) {
      piece.values[i] = exp_of_difference(piece.values[i], row_maximum) * probability_factor;
    }
    if (target >= column && target < column + width) {
      for (int i = 0; i < width; ++i) piece.values[i] -= column + i == target ? factor : 0.0f;
    }
    if (column + width > size.count) {
      for (int i = 0; i < width; ++i) piece.values[i] = column + i < size.count ? piece.values[i] : 0.0f;
    }
    store_floats(values + column, piece);
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    rescale_kernel(const float* local, const float* maximum, float* sum_exp, std::int64_t n) {
  for (std::int64_t i = first_element(); i < n; i += element_stride()) sum_exp[i] *= expf(local[i] - maximum[i]);
}

/// partial[gridDim.x]: sums of weighted losses. Logarithms and sums in double: the total is of many rows.
__global__ void __launch_bounds__(kBlockThreads)
    loss_kernel(const float* maximum, const float* sum_exp, const float* target_logit, const float* weights,
                float* losses, double* partial, std::int64_t n) {
  __shared__ double partial_sum[kWarpThreads];
  double sum = 0;
  for (std::int64_t i = first_element(); i < n; i += element_stride()) {
    const double above_target = static_cast<double>(maximum[i]) - static_cast<double>(target_logit[i]);
    const double loss = above_target + log(static_cast<double>(sum_exp[i]));
    sum += weights != nullptr ? static_cast<double>(weights[i]) * loss : loss;
    if (losses != nullptr) losses[i] = static_cast<float>(loss);
  }
  sum = block_sum(sum, partial_sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

RowSize row_size(std::int64_t columns, std::int64_t first_column, std::int64_t vocab_size) {
  internal_check(columns < std::int64_t{1} << 30, "cross entropy over 2^30 columns", columns);
  return {.columns = static_cast<int>(columns),
          .count = static_cast<int>(real_columns(columns, first_column, vocab_size))};
}

LaunchShape block_a_row(std::int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(kBlockThreads)};
}

}  // namespace

void CudaOps::cross_entropy_local(const CrossEntropyLocalArgs& args) {
  with_activation_type("cross_entropy_local", args.logits.dtype(), [&]<class T>(T) {
    const RowsOf size(args.logits);
    const T* logits = elements_of<T>("cross_entropy_local", args.logits, size.elements());
    const std::int32_t* targets = elements_of<std::int32_t>("cross_entropy_local", args.targets, size.rows);
    float* maximum = elements_of<float>("cross_entropy_local", args.maximum, size.rows);
    float* sum_exp = elements_of<float>("cross_entropy_local", args.sum_exp, size.rows);
    float* target_logit = elements_of<float>("cross_entropy_local", args.target_logit, size.rows);
    if (size.rows == 0) return;
    const bool vectors = vectorizable<T>(size.columns, logits);
    launch(stream_, block_a_row(size.rows), vectors ? local_kernel<T, Vector<T>::size> : local_kernel<T, 1>, logits,
           targets, args.first_column, row_size(size.columns, args.first_column, args.vocab_size), maximum, sum_exp,
           target_logit);
  });
}

void CudaOps::cross_entropy_rescale(const CrossEntropyRescaleArgs& args) {
  const std::int64_t n = args.maximum.elements();
  const float* local = elements_of<float>("cross_entropy_rescale", args.local_maximum, n);
  const float* maximum = elements_of<float>("cross_entropy_rescale", args.maximum, n);
  float* sum_exp = elements_of<float>("cross_entropy_rescale", args.sum_exp, n);
  if (n > 0) launch(stream_, elementwise_shape(n), rescale_kernel, local, maximum, sum_exp, n);
}

void CudaOps::cross_entropy_loss(const CrossEntropyLossArgs& args) {
  const std::int64_t n = args.maximum.elements();
  const float* maximum = elements_of<float>("cross_entropy_loss", args.maximum, n);
  const float* sum_exp = elements_of<float>("cross_entropy_loss", args.sum_exp, n);
  const float* target_logit = elements_of<float>("cross_entropy_loss", args.target_logit, n);
  const float* weights = optional_elements_of<float>("cross_entropy_loss", args.weights, n);
  float* losses = optional_elements_of<float>("cross_entropy_loss", args.losses, n);
  double* total = f64_scalar("cross_entropy_loss", args.total);
  if (n == 0) return;
  const LaunchShape shape = elementwise_shape(n);
  auto* partial = reinterpret_cast<double*>(scratch(shape.grid.x * sizeof(double)));
  launch(stream_, shape, loss_kernel, maximum, sum_exp, target_logit, weights, losses, partial, n);
  add_partial_sums(stream_, partial, shape.grid.x, total);
}

void CudaOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  with_activation_type("cross_entropy_backward", args.logits.dtype(), [&]<class T>(T) {
    const RowsOf size(args.logits);
    T* logits = elements_of<T>("cross_entropy_backward", args.logits, size.elements());
    const std::int32_t* targets = elements_of<std::int32_t>("cross_entropy_backward", args.targets, size.rows);
    const float* maximum = elements_of<float>("cross_entropy_backward", args.maximum, size.rows);
    const float* sum_exp = elements_of<float>("cross_entropy_backward", args.sum_exp, size.rows);
    const float* weights = optional_elements_of<float>("cross_entropy_backward", args.weights, size.rows);
    if (size.rows == 0) return;
    const bool vectors = vectorizable<T>(size.columns, logits);
    launch(stream_, block_a_row(size.rows), vectors ? backward_kernel<T, Vector<T>::size> : backward_kernel<T, 1>,
           logits, targets, args.first_column, row_size(size.columns, args.first_column, args.vocab_size), maximum,
           sum_exp, weights, args.scale);
  });
}

}  // namespace megatron
