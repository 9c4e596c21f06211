// The innermost loop of products of a few rows (few_rows.h): a block of rows of x by a block of rows of w, summed in
// lanes that stay in registers. Knows pointers only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/attention_tile.h"
#include "base/core/half.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace megatron::few_rows {

using attention::kLanes;
using attention::Lanes;

/// Rows of x and rows of w (columns of the product) whose sums the registers hold.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 4, kTileColumns = 6;
#else
inline constexpr int kTileRows = 2, kTileColumns = 4;
#endif

/// Compilers read an operand from memory once for each multiplication that uses it, unless its value may have changed.
template <class Vector>
inline void keep_in_register(Vector& value) {
#if defined(__AVX__)
  asm("" : "+v"(value));
#else
  (void)value;
#endif
}

/// How a vector of elements is loaded and multiplied into sums.
struct Floats {
  using Element = float;
  using Vector = Lanes;
  static constexpr std::int64_t kElements = kLanes;
  static Vector load(const Element* x) { return attention::load(x); }
  static Lanes multiply_add(Vector a, Vector b, Lanes sum) { return sum + a * b; }
};

#if defined(__AVX512BF16__)
/// Pairs of products are added to each lane, in f32. The processor takes subnormal numbers for 0.
struct BFloat16Pairs {
  using Element = BFloat16;
  using Vector = __m512bh;
  static constexpr std::int64_t kElements = 2 * kLanes;
  static Vector load(const Element* x) {
    Vector value;
    std::memcpy(&value, x, sizeof value);
    return value;
  }
  static Lanes multiply_add(Vector a, Vector b, Lanes sum) { return Lanes(_mm512_dpbf16_ps(__m512(sum), a, b)); }
};
template <class W>
using KindOf = std::conditional_t<std::is_same_v<W, BFloat16>, BFloat16Pairs, Floats>;
#else
template <class W>
using KindOf = Floats;
#endif

/// Memory to ask for while multiplying: that of `lines` addresses each step. Any address will do.
struct Ahead {
  int lines = 0;
  const char* from[kTileColumns] = {};
  std::int64_t step = 0;  ///< bytes from the addresses of a step to those of the next
};

/// sums[row * kTileColumns + column] += x[row] · w[column], in lanes, over `steps` vectors of each. x: vector by
/// vector, of all rows. `set`: to sums of 0.
template <class Kind, int rows, int lines>
void add_products(const typename Kind::Element* x, const typename Kind::Element* const w[kTileColumns],
                  std::int64_t steps, const Ahead& ahead, bool set, Lanes* sums) {
  constexpr int columns = kTileColumns;
  const typename Kind::Element* sources[columns];
  std::copy_n(w, columns, sources);
  const char* asked[lines + 1];
  std::copy_n(ahead.from, lines, asked);
  std::int64_t offset = 0;
  Lanes own[rows * columns];
#pragma GCC unroll 32
  for (int i = 0; i < rows * columns; ++i) own[i] = set ? Lanes{} : sums[i];
  for (std::int64_t at = 0; at < steps * Kind::kElements; at += Kind::kElements) {
    typename Kind::Vector loaded[columns];
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      loaded[j] = Kind::load(sources[j] + at);
      keep_in_register(loaded[j]);
    }
#pragma GCC unroll 8
    for (int line = 0; line < lines; ++line) {
      // All lines of a single group are neighbours: one register.
      __builtin_prefetch((lines == kTileColumns ? asked[0] + 64 * line : asked[line]) + offset);
    }
    offset += ahead.step;
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      typename Kind::Vector row = Kind::load(x + (rows * at + i * Kind::kElements));
      keep_in_register(row);
#pragma GCC unroll 8
      for (int j = 0; j < columns; ++j) {
        own[i * columns + j] = Kind::multiply_add(row, loaded[j], own[i * columns + j]);
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < rows * columns; ++i) sums[i] = own[i];
}

/// add_products with as many rows and lines as there are.
template <class Kind, int lines>
void add_products(int rows, const typename Kind::Element* x, const typename Kind::Element* const w[kTileColumns],
                  std::int64_t steps, const Ahead& ahead, bool set, Lanes* sums) {
  static_assert(kTileRows <= 4);
  switch (rows) {
    case 1: return add_products<Kind, 1, lines>(x, w, steps, ahead, set, sums);
    case 2: return add_products<Kind, 2, lines>(x, w, steps, ahead, set, sums);
    case 3: return add_products<Kind, std::min(3, kTileRows), lines>(x, w, steps, ahead, set, sums);
    default: return add_products<Kind, kTileRows, lines>(x, w, steps, ahead, set, sums);
  }
}
template <class Kind>
void add_products(int rows, const typename Kind::Element* x, const typename Kind::Element* const w[kTileColumns],
                  std::int64_t steps, const Ahead& ahead, bool set, Lanes* sums) {
  switch (ahead.lines) {
    case 0: return add_products<Kind, 0>(rows, x, w, steps, ahead, set, sums);
    case 1: return add_products<Kind, 1>(rows, x, w, steps, ahead, set, sums);
    case 2: return add_products<Kind, 2>(rows, x, w, steps, ahead, set, sums);
    case 3: return add_products<Kind, 3>(rows, x, w, steps, ahead, set, sums);
    case 4: return add_products<Kind, 4>(rows, x, w, steps, ahead, set, sums);
    default: return add_products<Kind, kTileColumns>(rows, x, w, steps, ahead, set, sums);
  }
}

/// Groups of 2 · half lanes of a and then of b, their upper halves added to their lower ones.
template <std::int64_t half, std::size_t... i>
inline Lanes added_halves(Lanes a, Lanes b, std::index_sequence<i...>) {
  constexpr auto from = [](std::size_t lane) {
    return static_cast<int>(static_cast<std::int64_t>(lane) / half * 2 * half + static_cast<std::int64_t>(lane) % half);
  };
  return __builtin_shufflevector(a, b, from(i)...) +
         __builtin_shufflevector(a, b, (from(i) + static_cast<int>(half))...);
}

/// Lane i of the result is the sum of the lanes of vectors[i], in the order of attention::sum_of.
template <std::int64_t count = kLanes>
inline Lanes sums_of(const Lanes* vectors) {
  if constexpr (count == 1) {
    return vectors[0];
  } else {
    return added_halves<kLanes / count>(sums_of<count / 2>(vectors), sums_of<count / 2>(vectors + count / 2),
                                        std::make_index_sequence<kLanes>{});
  }
}

}  // namespace megatron::few_rows
