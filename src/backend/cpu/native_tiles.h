// The innermost parts of products of bf16 by instructions of the processor (native_gemm.h): matrices packed into tiles,
// tiles multiplied, sums stored. Compiled for the processors that have the instructions, whatever the build is for, so
// that only those may call it. Knows pointers only.
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

/// A row-major matrix of which `outer` rows or columns are packed, with `depth` elements of each.
struct Source {
  const BFloat16* data;
  std::int64_t stride;
  bool depth_is_contiguous;  ///< an outer index is a row of the matrix
  std::int64_t outer, depth;
};

/// Panels of 16 outer indices, one after the other; each is a row of tiles along the depth.
void pack_rows(const Source& source, BFloat16* tiles);
void pack_columns(const Source& source, BFloat16* tiles);

/// Panels to be multiplied: `rows` of a and `columns` of b, each `depth` tiles long.
struct Panels {
  const BFloat16 *a, *b;
  std::int64_t rows, columns, depth;
};

/// Instructions: the panels that a call takes, at most kMostRows and kMostColumns, and what it does.
struct Kernel {
  std::int64_t rows, columns;
  void (*begin)();  ///< on a thread, before its products
  void (*end)();    ///< after them
  /// sums[rows][columns][16][16] of the panels, on a cache line.
  void (*multiply)(const Panels& panels, float* sums);
};
const Kernel& amx_kernel();
const Kernel& avx512_kernel();

/// to = sums, or from + sums where `from` is not null; [rows, columns] of the 16 by 16. From and To: float, BFloat16.
template <class From, class To>
void store_sums(const float* sums, std::int64_t rows, std::int64_t columns, const From* from, std::int64_t from_stride,
                To* to, std::int64_t to_stride);

}  // namespace megatron::native
