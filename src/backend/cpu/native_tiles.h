// The innermost parts of products of bf16 by instructions of the processor (native_gemm.h, attention_native.h):
// matrices packed into tiles, tiles multiplied, sums stored. Compiled for the processors that have the instructions,
// whatever the build is for, so that only those may call it. Knows pointers only.
//
// A tile is 16 rows of op(a), or 16 columns of op(b), by 32 elements of depth, 1 KiB, filled up with zeros. One of rows
// has them one after the other; one of columns has pairs of depth, each pair for all columns.
#pragma once

#include <cstdint>

#include "base/core/half.h"

namespace megatron::native {

inline constexpr std::int64_t kWidth = 16, kDepth = 32, kTileElements = kWidth * kDepth;
/// Tiles of rows and of columns that one call multiplies, at most.
inline constexpr std::int64_t kMostRows = 2, kMostColumns = 3;
inline constexpr std::int64_t kSums = kMostRows * kMostColumns * kWidth * kWidth;

constexpr std::int64_t panels_of(std::int64_t outer) {
  return (outer + kWidth - 1) / kWidth;
}
constexpr std::int64_t tiles_of(std::int64_t depth) {
  return (depth + kDepth - 1) / kDepth;
}

/// A row-major matrix of which `outer` rows or columns are packed, with `depth` elements of each.
template <class T>
struct Source {
  const T* data;
  std::int64_t stride;
  bool depth_is_contiguous;  ///< an outer index is a row of the matrix
  std::int64_t outer, depth;
};

/// Panels of 16 outer indices, one after the other; each is a row of tiles along the depth. Floats are rounded to bf16.
void pack_rows(const Source<BFloat16>& source, BFloat16* tiles);
void pack_rows(const Source<float>& source, BFloat16* tiles);
void pack_columns(const Source<BFloat16>& source, BFloat16* tiles);
void pack_columns(const Source<float>& source, BFloat16* tiles);

/// Panels to be multiplied: `rows` of a and `columns` of b, of each `depth` tiles; strides in elements from panel to
/// panel. Whole tiles of a may also be used where they lie in a row-major matrix.
struct Panels {
  const BFloat16 *a, *b;
  std::int64_t a_stride, b_stride;
  std::int64_t rows, columns, depth;
  std::int64_t a_row = kDepth,
               a_tile = kTileElements;  ///< elements from row to row of a's tiles, and from tile to tile
  const BFloat16* a_next = nullptr;     ///< panels that lie as a's and are prefetched, for the call after this
};

/// Sums of panels: a row-major matrix of whole tiles, 16 rows and columns each.
struct Sums {
  float* data;
  std::int64_t stride;
};
struct ConstSums {
  const float* data;
  std::int64_t stride;
};

/// Instructions: the panels that a call takes, at most kMostRows and kMostColumns, and what it does.
struct Kernel {
  std::int64_t rows, columns;
  void (*begin)();  ///< on a thread, before its products
  void (*end)();    ///< after them
  /// sums[16 rows, 16 columns] = a · b, added to sums if `add`.
  void (*multiply)(const Panels& panels, Sums sums, bool add);
};
const Kernel& amx_kernel();
const Kernel& avx512_kernel();

/// to = sums, or from + sums where `from` is not null; [rows, columns] of a tile. From and To: float, BFloat16.
template <class From, class To>
void store_sums(ConstSums sums, std::int64_t rows, std::int64_t columns, const From* from, std::int64_t from_stride,
                To* to, std::int64_t to_stride);

/// to[columns, rows] = factor · sumsᵀ, of the first rows and columns of a tile. To: float, BFloat16.
template <class To>
void store_transposed(ConstSums sums, std::int64_t rows, std::int64_t columns, float factor, To* to,
                      std::int64_t to_stride);

}  // namespace megatron::native
