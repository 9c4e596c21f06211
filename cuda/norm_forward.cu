// Layer normalisation, forward. A row of aligned vectors is read once and kept in registers by a team of threads; other
// rows (odd sizes, unaligned, very long) are gone over by a warp three times.
#include "cuda/cuda_ops.h"
#include "cuda/norm.cuh"
#include "ops/arguments.h"

namespace megatron {

namespace {

struct Statistics {
  float mean, rstd;
};

/// From a first mean, the sum of deviations from it, and of their squares. The variance from deviations, not from
/// E[x²] - E[x]²: a common offset of a row must not cost digits. The first mean's own rounding is put right by the
/// mean of the deviations from it.
__device__ __forceinline__ Statistics statistics_of(float first_mean, Sums deviations, float reciprocal,
                                                    float epsilon) {
  const float correction = deviations.first * reciprocal;
  const float variance = fmaxf(deviations.second * reciprocal - correction * correction, 0.0f);
  return {first_mean + correction, 1.0f / sqrtf(variance + epsilon)};
}

template <class T>
struct ForwardPointers {
  const T *x, *gamma, *beta;
  T* y;
  float *mean, *rstd;
};

template <class T, int team, int vectors>
__global__ void __launch_bounds__(norm_block(team))
    forward_kernel(ForwardPointers<T> at, std::int64_t rows, int columns, float epsilon) {
  constexpr int width = Vector<T>::size, teams = norm_block(team) / team;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * teams + threadIdx.x / team;
  if (row >= rows) return;
  const int first = static_cast<int>(threadIdx.x) % team * width;
  const T* x = at.x + row * columns;
  Vector<T> in[vectors];
  Sums sums{0, 0};
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int column = first + k * team * width;
    if (column < columns) in[k] = load_vector(x + column);
  }
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    if (first + k * team * width >= columns) continue;
    const auto values = to_floats(in[k]);
    for (int i = 0; i < width; ++i) sums.first += values.values[i];
  }
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const float first_mean = team_sums<team>(sums).first * reciprocal;
  sums = {0, 0};
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    if (first + k * team * width >= columns) continue;
    const auto values = to_floats(in[k]);
    for (int i = 0; i < width; ++i) {
      const float deviation = values.values[i] - first_mean;
      sums.first += deviation;
      sums.second += deviation * deviation;
    }
  }
  const Statistics row_is = statistics_of(first_mean, team_sums<team>(sums), reciprocal, epsilon);
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int column = first + k * team * width;
    if (column >= columns) continue;
    auto values = to_floats(in[k]);
    const auto gamma = load_floats<width>(at.gamma + column), beta = load_floats<width>(at.beta + column);
    for (int i = 0; i < width; ++i) {
      values.values[i] = (values.values[i] - row_is.mean) * row_is.rstd * gamma.values[i] + beta.values[i];
    }
    store_floats(at.y + row * columns + column, values);
  }
  if (first == 0) {
    at.mean[row] = row_is.mean;
    at.rstd[row] = row_is.rstd;
  }
}

/// A warp goes over a row three times; what is not in a cache is read again.
template <class T, int width>
__global__ void __launch_bounds__(256)
    forward_again_kernel(ForwardPointers<T> at, std::int64_t rows, std::int64_t columns, float epsilon) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= rows) return;
  const std::int64_t first = threadIdx.x % kWarpThreads * width, step = kWarpThreads * width;
  const T* x = at.x + row * columns;
  const float reciprocal = 1.0f / static_cast<float>(columns);
  Sums sums{0, 0};
  for (std::int64_t column = first; column < columns; column += step) {
    const auto values = load_floats<width>(x + column);
    for (int i = 0; i < width; ++i) sums.first += values.values[i];
  }
  const float first_mean = warp_sum(sums.first) * reciprocal;
  sums = {0, 0};
  for (std::int64_t column = first; column < columns; column += step) {
    const auto values = load_floats<width>(x + column);
    for (int i = 0; i < width; ++i) {
      const float deviation = values.values[i] - first_mean;
      sums.first += deviation;
      sums.second += deviation * deviation;
    }
  }
  const Statistics row_is = statistics_of(first_mean, team_sums<kWarpThreads>(sums), reciprocal, epsilon);
  for (std::int64_t column = first; column < columns; column += step) {
    auto values = load_floats<width>(x + column);
    const auto gamma = load_floats<width>(at.gamma + column), beta = load_floats<width>(at.beta + column);
    for (int i = 0; i < width; ++i) {
      values.values[i] = (values.values[i] - row_is.mean) * row_is.rstd * gamma.values[i] + beta.values[i];
    }
    store_floats(at.y + row * columns + column, values);
  }
  if (first == 0) {
    at.mean[row] = row_is.mean;
    at.rstd[row] = row_is.rstd;
  }
}

}  // namespace

void CudaOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  with_activation_type("layer_norm_forward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const std::int64_t rows = size.rows, columns = size.columns;
    const ForwardPointers<T> at{.x = elements_of<T>("layer_norm_forward", args.x, size.elements()),
                                .gamma = elements_of<T>("layer_norm_forward", args.gamma, columns),
                                .beta = elements_of<T>("layer_norm_forward", args.beta, columns),
                                .y = elements_of<T>("layer_norm_forward", args.y, size.elements()),
                                .mean = elements_of<float>("layer_norm_forward", args.mean, rows),
                                .rstd = elements_of<float>("layer_norm_forward", args.rstd, rows)};
    if (size.elements() == 0) return;
    const bool vectors_fit = vectorizable<T>(columns, at.x, at.gamma, at.beta, at.y);
    const auto in_registers = [&]<int team, int vectors>() {
      constexpr int teams = norm_block(team) / team;
      const LaunchShape shape{.grid = dim3(static_cast<unsigned>((rows + teams - 1) / teams)),
                              .block = dim3(norm_block(team))};
      launch(stream_, shape, forward_kernel<T, team, vectors>, at, rows, columns, args.epsilon);
    };
    if (vectors_fit && with_norm_team<T>(columns, in_registers)) return;
    const auto kernel = vectors_fit ? forward_again_kernel<T, Vector<T>::size> : forward_again_kernel<T, 1>;
    launch(stream_, warp_rows_shape(rows), kernel, at, rows, columns, args.epsilon);
  });
}

}  // namespace megatron
