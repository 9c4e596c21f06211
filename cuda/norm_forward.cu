// Layer normalisation, forward. A row of aligned vectors is read once and kept in registers by a team of threads; other
// rows (odd sizes, unaligned, very long) are gone over by a warp three times. RMSNorm is the same with a mean of 0.
#include "backend/ops/arguments.h"
#include "cuda/cuda_ops.h"
#include "cuda/norm.cuh"

namespace megatron {

namespace {

template <class T>
struct ForwardPointers {
  StridedRows<const T> x;
  const T *gamma, *beta;  ///< beta or null
  StridedRows<T> y;
  float *mean, *rstd;  ///< mean or null: RMSNorm
  float epsilon;

  __device__ bool centered() const { return mean != nullptr; }
};

struct Statistics {
  float mean, rstd;
};

/// From a first mean, the sum of deviations from it, and of their squares. The variance from deviations, not from
/// E[x²] - E[x]²: a common offset of a row must not cost digits. The first mean's own rounding is put right by the
/// mean of the deviations from it.
template <class T>
__device__ __forceinline__ Statistics statistics_of(const ForwardPointers<T>& at, float first_mean, Sums deviations,
                                                    float reciprocal) {
  const float correction = at.centered() ? deviations.first * reciprocal : 0.0f;
  const float variance = fmaxf(deviations.second * reciprocal - correction * correction, 0.0f);
  return {first_mean + correction, 1.0f / sqrtf(variance + at.epsilon)};
}

template <int width>
__device__ __forceinline__ void add_deviations(Sums& sums, const Vector<float, width>& values, float first_mean) {
  for (int i = 0; i < width; ++i) {
    const float deviation = values.values[i] - first_mean;
    sums.first += deviation;
    sums.second += deviation * deviation;
  }
}

/// A piece of a row of y.
template <int width, class T>
__device__ __forceinline__ void store_normalized(const ForwardPointers<T>& at, const Statistics& row_is,
                                                 Vector<float, width> values, std::int64_t column, T* y) {
  const auto gamma = load_floats<width>(at.gamma + column);
  for (int i = 0; i < width; ++i) {
    values.values[i] = (values.values[i] - row_is.mean) * row_is.rstd * gamma.values[i];
  }
  if (at.beta != nullptr) {
    const auto beta = load_floats<width>(at.beta + column);
    for (int i = 0; i < width; ++i) values.values[i] += beta.values[i];
  }
  store_floats(y + column, values);
}

template <class T>
__device__ __forceinline__ void store_statistics(const ForwardPointers<T>& at, const Statistics& row_is,
                                                 std::int64_t row) {
  if (at.centered()) at.mean[row] = row_is.mean;
  at.rstd[row] = row_is.rstd;
}

template <class T, int team, int vectors>
__global__ void __launch_bounds__(norm_block(team))
    forward_kernel(ForwardPointers<T> at, std::int64_t rows, int columns) {
  constexpr int width = Vector<T>::size, teams = norm_block(team) / team;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * teams + threadIdx.x / team;
  const bool inside = row < rows;  // some of a warp's teams may have no row
  const int first = static_cast<int>(threadIdx.x) % team * width, end = inside ? columns : 0;
  const T* x = at.x[inside ? row : 0];
  Vector<T> in[vectors];
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int column = first + k * team * width;
    if (column < end) in[k] = load_vector(x + column);
  }
  const float reciprocal = 1.0f / static_cast<float>(columns);
  float first_mean = 0;
  Sums sums{0, 0};
  if (at.centered()) {
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      if (first + k * team * width >= end) continue;
      const auto values = to_floats(in[k]);
      for (int i = 0; i < width; ++i) sums.first += values.values[i];
    }
    first_mean = team_sums<team>(sums).first * reciprocal;
    sums = {0, 0};
  }
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    if (first + k * team * width < end) add_deviations(sums, to_floats(in[k]), first_mean);
  }
  const Statistics row_is = statistics_of(at, first_mean, team_sums<team>(sums), reciprocal);
  if (!inside) return;
  T* y = at.y[row];
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int column = first + k * team * width;
    if (column < columns) store_normalized(at, row_is, to_floats(in[k]), column, y);
  }
  if (first == 0) store_statistics(at, row_is, row);
}

/// A warp goes over a row three times; what is not in a cache is read again.
template <class T, int width>
__global__ void __launch_bounds__(256)
    forward_again_kernel(ForwardPointers<T> at, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= rows) return;
  const std::int64_t first = threadIdx.x % kWarpThreads * width, step = kWarpThreads * width;
  const T* x = at.x[row];
  T* y = at.y[row];
  const float reciprocal = 1.0f / static_cast<float>(columns);
  float first_mean = 0;
  Sums sums{0, 0};
  if (at.centered()) {
    for (std::int64_t column = first; column < columns; column += step) {
      const auto values = load_floats<width>(x + column);
      for (int i = 0; i < width; ++i) sums.first += values.values[i];
    }
    first_mean = warp_sum(sums.first) * reciprocal;
    sums = {0, 0};
  }
  for (std::int64_t column = first; column < columns; column += step) {
    add_deviations(sums, load_floats<width>(x + column), first_mean);
  }
  const Statistics row_is = statistics_of(at, first_mean, team_sums<kWarpThreads>(sums), reciprocal);
  for (std::int64_t column = first; column < columns; column += step) {
    store_normalized(at, row_is, load_floats<width>(x + column), column, y);
  }
  if (first == 0) store_statistics(at, row_is, row);
}

}  // namespace

void CudaOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  with_activation_type("layer_norm_forward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const std::int64_t rows = size.rows, columns = size.columns;
    const ForwardPointers<T> at{
        .x = rows_of<T>("layer_norm_forward", args.x, size),
        .gamma = elements_of<T>("layer_norm_forward", args.gamma, columns),
        .beta = optional_elements_of<T>("layer_norm_forward", args.beta, columns),
        .y = rows_of<T>("layer_norm_forward", args.y, size),
        .mean = row_of(args.kind).centered ? elements_of<float>("layer_norm_forward", args.mean, rows) : nullptr,
        .rstd = elements_of<float>("layer_norm_forward", args.rstd, rows),
        .epsilon = args.epsilon};
    if (size.elements() == 0) return;
    const bool vectors_fit = vectorizable<T>(columns, at.gamma, at.beta) && vectorizable_rows<T>(columns, at.x, at.y);
    const auto in_registers = [&]<int team, int vectors>() {
      constexpr int teams = norm_block(team) / team;
      const LaunchShape shape{.grid = dim3(static_cast<unsigned>((rows + teams - 1) / teams)),
                              .block = dim3(norm_block(team))};
      launch(stream_, shape, forward_kernel<T, team, vectors>, at, rows, columns);
    };
    if (vectors_fit && with_norm_team<T>(columns, in_registers)) return;
    const auto kernel = vectors_fit ? forward_again_kernel<T, Vector<T>::size> : forward_again_kernel<T, 1>;
    launch(stream_, warp_rows_shape(rows), kernel, at, rows, columns);
  });
}

}  // namespace megatron
