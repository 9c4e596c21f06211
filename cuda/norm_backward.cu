// Layer normalisation, backward. A row of aligned vectors is read once and kept in registers by a team of threads,
// which also adds up the parameters' gradients of all its rows; other rows take two kernels and are read three times.
#include <algorithm>

#include "backend/ops/arguments.h"
#include "cuda/column_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/norm.cuh"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

template <class T>
struct BackwardPointers {
  StridedRows<const T> dy, x;
  const T* gamma;
  const float *mean, *rstd;       ///< mean or null: RMSNorm
  StridedRows<const T> residual;  ///< data or null
  StridedRows<T> dx;
  bool with_beta;

  __device__ float mean_of(std::int64_t row) const { return mean == nullptr ? 0.0f : mean[row]; }
};

/// Values that the gradients of a row have in common.
struct RowGradient {
  float mean, rstd;
  float mean_gradient = 0, mean_product = 0;  ///< means of dy · gamma, and of that times the normalised x

  /// From the row's sums. An RMSNorm has no mean that x and the gradient would be moved by.
  __device__ void set(Sums sums, float reciprocal, bool centered) {
    mean_gradient = centered ? sums.first * reciprocal : 0.0f;
    mean_product = sums.second * reciprocal;
  }
  __device__ float normal(float x) const { return (x - mean) * rstd; }
  __device__ float input(float gradient, float normal) const {
    return rstd * (gradient - mean_gradient - normal * mean_product);
  }
};

/// dx of a piece of a row.
template <int width, class T>
__device__ __forceinline__ void store_input_gradient(const RowGradient& row_is, const Vector<T, width>& dy,
                                                     const Vector<T, width>& x, const T* gamma, bool with_residual,
                                                     const Vector<T, width>& residual, T* dx) {
  auto gradient = to_floats(dy);
  const auto in = to_floats(x), weights = load_floats<width>(gamma);
  for (int i = 0; i < width; ++i) {
    gradient.values[i] = row_is.input(gradient.values[i] * weights.values[i], row_is.normal(in.values[i]));
  }
  if (with_residual) {
    const auto through = to_floats(residual);
    for (int i = 0; i < width; ++i) gradient.values[i] += through.values[i];
  }
  store_floats(dx, gradient);
}

/// Adds to the row's sums what a piece of it gives.
template <int width, class T>
__device__ __forceinline__ void add_row_sums(Sums& sums, const RowGradient& row_is, const Vector<T, width>& dy,
                                             const Vector<T, width>& x, const T* gamma) {
  const auto gradient = to_floats(dy), in = to_floats(x), weights = load_floats<width>(gamma);
  for (int i = 0; i < width; ++i) {
    const float weighted = gradient.values[i] * weights.values[i];
    sums.first += weighted;
    sums.second += weighted * row_is.normal(in.values[i]);
  }
}
template <int width, class T>
__device__ __forceinline__ void add_parameter_sums(Vector<float, width>& dgamma, Vector<float, width>& dbeta,
                                                   const RowGradient& row_is, const Vector<T, width>& dy,
                                                   const Vector<T, width>& x) {
  const auto gradient = to_floats(dy), in = to_floats(x);
  for (int i = 0; i < width; ++i) {
    dgamma.values[i] += gradient.values[i] * row_is.normal(in.values[i]);
    dbeta.values[i] += gradient.values[i];
  }
}

/// Blocks that a multiprocessor should hold of the backward kernel: registers for the sums of two gradients and for a
/// row's three vectors decide.
constexpr int resident_blocks(int team, int elements_a_thread) {
  return (elements_a_thread <= 8 ? 1024 : 512) / norm_block(team);
}

/// slice[0, column] = dgamma, slice[1, column] = dbeta of the block, the latter if with_beta; its teams' sums are added
/// in order.
template <class T, int team, int vectors>
__device__ __forceinline__ void store_parameter_sums(const Vector<float, Vector<T>::size> (&dgamma)[vectors],
                                                     const Vector<float, Vector<T>::size> (&dbeta)[vectors],
                                                     float* slice, int columns, bool with_beta) {
  constexpr int width = Vector<T>::size, teams = norm_block(team) / team;
  const int first = static_cast<int>(threadIdx.x) % team * width;
  if constexpr (teams == 1) {
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      const int column = first + k * team * width;
      if (column >= columns) continue;
      store_global(slice + column, dgamma[k]);
      if (with_beta) store_global(slice + columns + column, dbeta[k]);
    }
  } else {
    __shared__ float sums[2][vectors][width][team];
    for (int turn = 0; turn < teams; ++turn) {
      if (static_cast<int>(threadIdx.x) / team == turn) {
        const int lane = static_cast<int>(threadIdx.x) % team;
#pragma unroll
        for (int k = 0; k < vectors; ++k) {
          for (int i = 0; i < width; ++i) {
            float &gamma_sum = sums[0][k][i][lane], &beta_sum = sums[1][k][i][lane];
            gamma_sum = turn == 0 ? dgamma[k].values[i] : gamma_sum + dgamma[k].values[i];
            beta_sum = turn == 0 ? dbeta[k].values[i] : beta_sum + dbeta[k].values[i];
          }
        }
      }
      __syncthreads();
    }
    for (int column = static_cast<int>(threadIdx.x); column < columns; column += norm_block(team)) {
      const int k = column / (team * width), lane = column / width % team, i = column % width;
      slice[column] = sums[0][k][i][lane];
      if (with_beta) slice[columns + column] = sums[1][k][i][lane];
    }
  }
}

/// partial: [gridDim.x, 2 or without beta 1, columns], dgamma and dbeta of each block's rows. One pass: reads dy, x and
/// what by-passed the norm, writes dx.
template <class T, int team, int vectors>
__global__ void __launch_bounds__(norm_block(team), resident_blocks(team, vectors* Vector<T>::size))
    backward_kernel(BackwardPointers<T> at, float* partial, std::int64_t rows, int columns) {
  constexpr int width = Vector<T>::size, teams = norm_block(team) / team;
  const int first = static_cast<int>(threadIdx.x) % team * width;
  const float reciprocal = 1.0f / static_cast<float>(columns);
  Vector<float, width> dgamma[vectors] = {}, dbeta[vectors] = {};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * teams;
  for (std::int64_t block_row = static_cast<std::int64_t>(blockIdx.x) * teams; block_row < rows; block_row += stride) {
    const std::int64_t its_row = block_row + threadIdx.x / team;
    const bool inside = its_row < rows;  // some of a block's teams may have no row
    const std::int64_t row = inside ? its_row : 0;
    const int end = inside ? columns : 0;
    const T *dy_row = at.dy[row] + first, *x_row = at.x[row] + first;
    Vector<T> dy[vectors], x[vectors], residual[vectors];
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      if (first + k * team * width >= end) continue;
      dy[k] = load_vector(dy_row + k * team * width);
      x[k] = load_vector(x_row + k * team * width);
    }
    RowGradient row_is{at.mean_of(row), at.rstd[row]};
    Sums sums{0, 0};
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      const int column = first + k * team * width;
      if (column >= end) continue;
      add_row_sums(sums, row_is, dy[k], x[k], at.gamma + column);
      add_parameter_sums(dgamma[k], dbeta[k], row_is, dy[k], x[k]);
    }
    if (at.residual.data != nullptr) {  // not before: there are no registers for it
      const T* residual_row = at.residual[row] + first;
#pragma unroll
      for (int k = 0; k < vectors; ++k) {
        if (first + k * team * width < end) residual[k] = load_vector(residual_row + k * team * width);
      }
    }
    row_is.set(team_sums<team>(sums), reciprocal, at.mean != nullptr);
    T* dx_row = at.dx[row] + first;
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      const int column = first + k * team * width;
      if (column >= end) continue;
      store_input_gradient(row_is, dy[k], x[k], at.gamma + column, at.residual.data != nullptr, residual[k],
                           dx_row + k * team * width);
    }
  }
  const std::int64_t sums_of_block = (at.with_beta ? 2 : 1) * static_cast<std::int64_t>(columns);
  store_parameter_sums<T, team, vectors>(dgamma, dbeta, partial + blockIdx.x * sums_of_block, columns, at.with_beta);
}

/// The input's gradient, by a warp that goes over its row twice.
template <class T, int width>
__global__ void __launch_bounds__(256)
    backward_again_kernel(BackwardPointers<T> at, std::int64_t rows, std::int64_t columns) {
  const std::int64_t row = first_element() / kWarpThreads;
  if (row >= rows) return;
  const std::int64_t first = threadIdx.x % kWarpThreads * width, step = kWarpThreads * width;
  RowGradient row_is{at.mean_of(row), at.rstd[row]};
  const T *dy = at.dy[row], *x = at.x[row];
  Sums sums{0, 0};
  for (std::int64_t column = first; column < columns; column += step) {
    add_row_sums(sums, row_is, load_vector<width>(dy + column), load_vector<width>(x + column), at.gamma + column);
  }
  row_is.set(team_sums<kWarpThreads>(sums), 1.0f / static_cast<float>(columns), at.mean != nullptr);
  const bool with_residual = at.residual.data != nullptr;
  const T* through = with_residual ? at.residual[row] : nullptr;
  T* dx = at.dx[row];
  for (std::int64_t column = first; column < columns; column += step) {
    Vector<T, width> residual;
    if (with_residual) residual = load_vector<width>(through + column);
    store_input_gradient(row_is, load_vector<width>(dy + column), load_vector<width>(x + column), at.gamma + column,
                         with_residual, residual, dx + column);
  }
}

template <class T, int width>
struct GradientAndInput {
  Vector<T, width> dy, x;
};

/// partial: [gridDim.y, 2 or without beta 1, columns], for rows that backward_kernel does not take.
template <class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    parameters_kernel(BackwardPointers<T> at, float* partial, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  Vector<float, width> dgamma{}, dbeta{};
  if (tile.inside()) {
    using Inputs = GradientAndInput<T, width>;
    tile.template for_each_row<2>(
        [&](std::int64_t, std::int64_t row) {
          return Inputs{load_vector<width>(at.dy[row] + tile.column), load_vector<width>(at.x[row] + tile.column)};
        },
        [&](std::int64_t, std::int64_t row, const Inputs& loaded) {
          add_parameter_sums(dgamma, dbeta, RowGradient{at.mean_of(row), at.rstd[row]}, loaded.dy, loaded.x);
        });
  }
  float* slice = partial + blockIdx.y * (at.with_beta ? 2 : 1) * columns;
  tile.store_sums(dgamma, slice);
  if (at.with_beta) tile.store_sums(dbeta, slice + columns);
}

}  // namespace

void CudaOps::layer_norm_backward(const LayerNormBackwardArgs& args) {
  with_activation_type("layer_norm_backward", args.x.dtype(), [&]<class T>(T) {
    const RowsOf size(args.x);
    const std::int64_t rows = size.rows, columns = size.columns;
    const BackwardPointers<T> at{
        .dy = rows_of<T>("layer_norm_backward", args.dy, size),
        .x = rows_of<T>("layer_norm_backward", args.x, size),
        .gamma = elements_of<T>("layer_norm_backward", args.gamma, columns),
        .mean = row_of(args.kind).centered ? elements_of<float>("layer_norm_backward", args.mean, rows) : nullptr,
        .rstd = elements_of<float>("layer_norm_backward", args.rstd, rows),
        .residual = args.residual_gradient.empty() ? StridedRows<const T>()
                                                   : rows_of<T>("layer_norm_backward", args.residual_gradient, size),
        .dx = rows_of<T>("layer_norm_backward", args.dx, size),
        .with_beta = !args.dbeta.empty()};
    float* dgamma = elements_of<float>("layer_norm_backward", args.dgamma, columns);
    float* dbeta = optional_elements_of<float>("layer_norm_backward", args.dbeta, columns);
    if (size.elements() == 0) return;
    const int sums_a_column = at.with_beta ? 2 : 1;
    const bool vectors_fit =
        vectorizable<T>(columns, at.gamma) && vectorizable_rows<T>(columns, at.dy, at.x, at.residual, at.dx);
    const auto in_registers = [&]<int team, int vectors>() {
      constexpr int teams = norm_block(team) / team;
      const std::int64_t resident =
          std::int64_t{resident_blocks(team, vectors * Vector<T>::size)} * device_.multiprocessors();
      const std::int64_t blocks = std::min(resident, (rows + teams - 1) / teams);
      float* partial = float_scratch(blocks * sums_a_column * columns);
      launch(stream_, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(norm_block(team))},
             backward_kernel<T, team, vectors>, at, partial, rows, columns);
      add_slices(stream_, partial, blocks, columns, dgamma, dbeta);
    };
    if (vectors_fit && with_norm_team<T>(columns, in_registers)) return;
    // The parameters' gradients first: dx may lie on dy.
    const LaunchShape shape =
        column_tile_shape(rows, columns, vectors_fit ? Vector<T>::size : 1, device_.multiprocessors(), 8);
    float* partial = float_scratch(shape.grid.y * sums_a_column * columns);
    launch(stream_, shape, vectors_fit ? parameters_kernel<T, Vector<T>::size> : parameters_kernel<T, 1>, at, partial,
           rows, columns);
    add_slices(stream_, partial, shape.grid.y, columns, dgamma, dbeta);
    launch(stream_, warp_rows_shape(rows),
           vectors_fit ? backward_again_kernel<T, Vector<T>::size> : backward_again_kernel<T, 1>, at, rows, columns);
  });
}

}  // namespace megatron
