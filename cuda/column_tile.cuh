// Going over a matrix so that every thread keeps to its columns: what belongs to a column (a bias) is read once, and
// sums over rows meet other threads' only at the end.
#pragma once

#include "cuda/kernel.cuh"

namespace megatron {

inline constexpr int kTileLanes = 32, kTileRows = 8, kTileThreads = kTileLanes * kTileRows;

/// Work of one thread in a block of kTileLanes × kTileRows: `width` columns from `column` on, and the rows that fall to
/// it when rows are dealt out in turn over threadIdx.y and blockIdx.y. The number of columns must be a multiple of
/// width.
template <int width>
struct ColumnTile {
  std::int64_t rows, columns, column;

  __device__ ColumnTile(std::int64_t rows_, std::int64_t columns_)
      : rows(rows_),
        columns(columns_),
        column((static_cast<std::int64_t>(blockIdx.x) * kTileLanes + threadIdx.x) * width) {}

  __device__ bool inside() const { return column < columns; }

  /// For the thread's rows, `batch` at a time so that their loads are under way together: loaded = load(at, row),
  /// then use(at, row, loaded). `at`: the index of the thread's first element of the row in a contiguous matrix. Only
  /// where inside().
  template <int batch, class Load, class Use>
  __device__ __forceinline__ void for_each_row(const Load& load, const Use& use) const {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.y) * kTileRows, step = stride * columns;
    std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTileRows + threadIdx.y;
    for (std::int64_t at = row * columns + column; row < rows; row += batch * stride, at += batch * step) {
      decltype(load(at, row)) loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (row + i * stride < rows) loaded[i] = load(at + i * step, row + i * stride);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (row + i * stride < rows) use(at + i * step, row + i * stride, loaded[i]);
      }
    }
  }

  /// slice[column] = the sum over the block's threads of `sums`, for the tile's columns. All threads of the block come.
  __device__ __forceinline__ void store_sums(const Vector<float, width>& sums, float* slice) const {
    __shared__ float all[kTileRows][width][kTileLanes];
    __syncthreads();  // no thread reads an earlier call's any more
    for (int i = 0; i < width; ++i) all[threadIdx.y][i][threadIdx.x] = sums.values[i];
    __syncthreads();
    if (!inside()) return;
    for (int i = static_cast<int>(threadIdx.y); i < width; i += kTileRows) {
      float sum = 0;
      for (int row = 0; row < kTileRows; ++row) sum += all[row][i][threadIdx.x];
      slice[column + i] = sum;
    }
  }
};

/// A launch over [rows, columns]; gridDim.y is the number of slices that sums over rows come in. Blocks for all
/// multiprocessors several times over, but with at least `rows_a_thread` rows for a thread where there are enough.
inline LaunchShape column_tile_shape(std::int64_t rows, std::int64_t columns, int width, int multiprocessors,
                                     int rows_a_thread) {
  const auto quotient_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  constexpr std::int64_t blocks_a_multiprocessor = 8, most = 65535;
  const std::int64_t tiles = quotient_up(columns, std::int64_t{kTileLanes} * width);
  std::int64_t slices = quotient_up(blocks_a_multiprocessor * multiprocessors, tiles);
  const std::int64_t useful = quotient_up(rows, std::int64_t{kTileRows} * rows_a_thread);
  if (slices > useful) slices = useful;
  if (slices > most) slices = most;
  return {.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slices)),
          .block = dim3(kTileLanes, kTileRows)};
}

}  // namespace megatron
