// Products of 16-bit matrices: both inputs are widened tile by tile, into scratch small enough to stay in cache, and
// multiplied in f32, for processors that multiply no bf16 faster (native_gemm.h) and for fp16. Widening is a few
// hundredths of the work. c is rounded once, also where it is a sum over tiles.
//
// On the calling thread alone. Knows pointers only, no tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/sgemm.h"
#include "backend/ops/product_size.h"
#include "base/core/half.h"

namespace megatron {

/// A row-major matrix, element (row, column) at data[row * stride + column], and whether its transpose is meant.
template <class T>
struct ProductInput {
  const T* data;
  std::int64_t stride;
  bool transposed;
};

namespace wide_tiles {

/// Largest extents of the tiles. Wide, as oneDNN's fastest kernels are for products of which m·n / (m + n) passes about
/// 500; and not deep, so that the scratch stays small and the widened inputs in cache.
inline constexpr ProductSize kTile{1536, 1536, 384};

struct Range {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

/// [0, count) in equal parts of at most `largest`, all but the last multiples of whole vectors; one part of nothing.
class Parts {
 public:
  Parts(std::int64_t count, std::int64_t largest)
      : count_(count), parts_(std::max<std::int64_t>(1, (count + largest - 1) / largest)) {}
  std::int64_t size() const { return parts_; }
  Range operator[](std::int64_t i) const { return {cut(i), cut(i + 1)}; }

 private:
  std::int64_t cut(std::int64_t i) const { return std::min(count_, ((count_ + 15) / 16 * i / parts_) * 16); }
  std::int64_t count_, parts_;
};

/// Floats from row to row of a tile: whole cache lines, and not a power of two (rows would share cache sets).
constexpr std::int64_t tile_stride(std::int64_t columns) {
  return (columns + 15) / 16 * 16 + 16;
}

/// Floats that a tile of either orientation needs.
constexpr std::int64_t tile_elements(std::int64_t rows, std::int64_t columns) {
  return std::max(rows * tile_stride(columns), columns * tile_stride(rows));
}

template <class From, class To>
void convert(std::int64_t rows, std::int64_t columns, const From* x, std::int64_t x_stride, To* y,
             std::int64_t y_stride) {
  for (std::int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) y[i] = narrow<To>(wide(x[i]));
  }
}

/// A tile of an input, widened. The last one is kept.
template <class T>
class Tile {
 public:
  Tile(ProductInput<T> input, float* memory) : input_(input), memory_(memory) {}

  /// Rows and columns of op(input), laid out as in the input itself.
  ConstMatrix load(Range rows, Range columns) {
    if (input_.transposed) std::swap(rows, columns);
    const std::int64_t stride = tile_stride(columns.size());
    if (!loaded_ || rows != rows_ || columns != columns_) {
      convert(rows.size(), columns.size(), input_.data + rows.first * input_.stride + columns.first, input_.stride,
              memory_, stride);
      rows_ = rows;
      columns_ = columns;
      loaded_ = true;
    }
    return {memory_, stride};
  }

 private:
  ProductInput<T> input_;
  float* memory_;
  Range rows_, columns_;
  bool loaded_ = false;
};

}  // namespace wide_tiles

/// Scratch that widening_gemm needs for a product of at most this size, a multiple of a cache line.
inline std::size_t widening_gemm_bytes(ProductSize size) {
  const std::int64_t m = std::min(size.m, wide_tiles::kTile.m), n = std::min(size.n, wide_tiles::kTile.n),
                     k = std::min(size.k, wide_tiles::kTile.k);
  const std::int64_t floats =
      wide_tiles::tile_elements(m, k) + wide_tiles::tile_elements(k, n) + wide_tiles::tile_elements(m, n);
  return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

/// c = op(a) · op(b), added to c if `accumulate`. Result is float or T. `memory`: widening_gemm_bytes.
template <class T, class Result>
void widening_gemm(ProductSize size, ProductInput<T> a, ProductInput<T> b, Result* c, std::int64_t c_stride,
                   bool accumulate, float* memory) {
  using namespace wide_tiles;
  constexpr bool in_place = std::is_same_v<Result, float>;
  const Parts down(size.m, kTile.m), across(size.n, kTile.n), inner(size.k, kTile.k);
  const std::int64_t m = std::min(size.m, kTile.m), n = std::min(size.n, kTile.n), k = std::min(size.k, kTile.k);
  Tile<T> a_tile(a, memory), b_tile(b, memory + tile_elements(m, k));
  float* sums = memory + tile_elements(m, k) + tile_elements(k, n);
  for (std::int64_t i = 0; i < down.size(); ++i) {
    for (std::int64_t j = 0; j < across.size(); ++j) {
      const Range rows = down[i], columns = across[j];
      Result* block = c + rows.first * c_stride + columns.first;
      Matrix target{sums, tile_stride(columns.size())};
      if constexpr (in_place) target = {block, c_stride};
      if (!in_place && accumulate) {
        convert(rows.size(), columns.size(), block, c_stride, target.data, target.stride);
      }
      for (std::int64_t part = 0; part < inner.size(); ++part) {
        const Range depth = inner[part];
        sgemm(a.transposed, b.transposed, rows.size(), columns.size(), depth.size(), 1.0f, a_tile.load(rows, depth),
              b_tile.load(depth, columns), accumulate || part > 0 ? 1.0f : 0.0f, target);
      }
      if (!in_place) convert(rows.size(), columns.size(), target.data, target.stride, block, c_stride);
    }
  }
}

}  // namespace megatron
