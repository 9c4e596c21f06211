#include "backend/cpu/native_tiles.h"

#include <algorithm>
#include <atomic>

#include "base/core/error.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC bug 105593, in its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#define MEGATRON_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]]
#define MEGATRON_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]]
#define MEGATRON_AMX [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,amx-tile,amx-bf16")]]

namespace megatron::native {

namespace {

constexpr int kVectors = 16;  // vectors of a tile

MEGATRON_AVX512 inline __mmask16 first_16(std::int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFFu : (1u << count) - 1u);
}
MEGATRON_AVX512 inline __mmask32 first_32(std::int64_t count) {
  return static_cast<__mmask32>(count >= 32 ? 0xFFFFFFFFu : (1u << count) - 1u);
}

/// 32 elements of which those of the mask are there, as bf16.
MEGATRON_AVX512_BF16 inline __m512i load_32(const BFloat16* x, __mmask32 there) {
  return _mm512_maskz_loadu_epi16(there, x);
}
MEGATRON_AVX512_BF16 inline __m512i load_32(const float* x, __mmask32 there) {
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(there), x),
               high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(there >> 16), x + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// A tile's outer indices where each is a row of the matrix: vector i has the depth of index i.
template <class T>
MEGATRON_AVX512_BF16 inline void load_contiguous(const Source<T>& source, std::int64_t outer, std::int64_t depth,
                                                 __m512i* vectors) {
  const T* from = source.data + outer * source.stride + depth;
  const __mmask32 there = first_32(source.depth - depth);
  const std::int64_t rows = source.outer - outer;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    vectors[i] = i < rows ? load_32(from + i * source.stride, there) : _mm512_setzero_si512();
  }
}

/// Pairs of the elements of two rows, of which those of the mask are there; a row that is null is 0.
MEGATRON_AVX512_BF16 inline __m512i load_pair(const BFloat16* even, const BFloat16* odd, __mmask16 there) {
  __m512i low = _mm512_setzero_si512(), high = low;
  if (even != nullptr) low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, even));
  if (odd != nullptr) high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, odd));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
MEGATRON_AVX512_BF16 inline __m512i load_pair(const float* even, const float* odd, __mmask16 there) {
  __m512 low = _mm512_setzero_ps(), high = low;
  if (even != nullptr) low = _mm512_maskz_loadu_ps(there, even);
  if (odd != nullptr) high = _mm512_maskz_loadu_ps(there, odd);
  const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, halves);
}

/// The same where each is a column: vector i has the pair 2i, 2i + 1 of the depth, of all indices.
template <class T>
MEGATRON_AVX512_BF16 inline void load_pairs(const Source<T>& source, std::int64_t outer, std::int64_t depth,
                                            __m512i* vectors) {
  const T* from = source.data + depth * source.stride + outer;
  const __mmask16 there = first_16(source.outer - outer);
  const std::int64_t rows = source.depth - depth;
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kVectors; ++i) {
    const T* even = from + 2 * i * source.stride;
    vectors[i] = load_pair(2 * i < rows ? even : nullptr, 2 * i + 1 < rows ? even + source.stride : nullptr, there);
  }
}

/// Prefetches what a tile is read from some tiles before it is packed. A tile is of more rows than the processor
/// follows by itself. Positions go along a row, in steps of a line of bf16, then down to the next rows. Small sources,
/// as attention has, are in a cache already.
template <class T>
class FetchAhead {
 public:
  FetchAhead(const Source<T>& source, std::int64_t rows_of_tile)
      : source_(source),
        rows_of_tile_(rows_of_tile),
        rows_(source.depth_is_contiguous ? source.outer : source.depth),
        columns_(source.depth_is_contiguous ? source.depth : source.outer),
        small_(rows_ * columns_ <= kSmall) {
    for (int i = 0; i < kAhead; ++i) next();
  }
  void fetch() {
    if (small_) return;
    constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
    const T* from = source_.data + row_ * source_.stride + column_;
    for (std::int64_t row = row_; row < std::min(row_ + rows_of_tile_, rows_); ++row, from += source_.stride) {
      for (std::int64_t i = 0; i < kStep; i += kLine) __builtin_prefetch(from + i);
    }
    next();
  }

 private:
  static constexpr int kAhead = 8;
  static constexpr std::int64_t kStep = 32, kSmall = std::int64_t{1} << 16;
  void next() {
    column_ += kStep;
    if (column_ < columns_) return;
    column_ = 0;
    row_ += rows_of_tile_;
  }
  const Source<T>& source_;
  std::int64_t rows_of_tile_, rows_, columns_, row_ = 0, column_ = 0;
  bool small_;
};

/// Transposes 16 by 16 pairs: one kind of tile becomes the other.
MEGATRON_AVX512 inline void transpose(__m512i* x) {
  __m512i y[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  constexpr int kEven = 0x88, kOdd = 0xDD;  // quarters of both operands
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], kEven);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], kOdd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], kEven);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], kOdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], kEven);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], kOdd);
    x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], kEven);
    x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], kOdd);
  }
}

MEGATRON_AVX512 inline void store_tile(const __m512i* vectors, BFloat16* tile) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) _mm512_store_si512(tile + i * kDepth, vectors[i]);
}

template <bool rows, class T>
MEGATRON_AVX512_BF16 void pack(const Source<T>& source, BFloat16* tiles) {
  const std::int64_t depth = tiles_of(source.depth);
  __m512i vectors[kVectors];
  FetchAhead ahead(source, source.depth_is_contiguous ? kWidth : kDepth);
  if (source.depth_is_contiguous) {
    for (std::int64_t outer = 0; outer < source.outer; outer += kWidth) {
      for (std::int64_t first = 0; first < source.depth; first += kDepth) {
        ahead.fetch();
        load_contiguous(source, outer, first, vectors);
        if (!rows) transpose(vectors);
        store_tile(vectors, tiles);
        tiles += kTileElements;
      }
    }
    return;
  }
  for (std::int64_t first = 0; first < source.depth; first += kDepth) {
    for (std::int64_t outer = 0; outer < source.outer; outer += kWidth) {
      if (outer % kDepth == 0) ahead.fetch();  // a line is of two tiles
      load_pairs(source, outer, first, vectors);
      if (rows) transpose(vectors);
      store_tile(vectors, tiles + (outer / kWidth * depth + first / kDepth) * kTileElements);
    }
  }
}

/// Registers 0 to 3 are sums, 4 and 5 tiles of rows, 6 and 7 tiles of columns; all of 16 rows of 64 bytes.
struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

MEGATRON_AMX void begin_amx() {
  static constexpr TileShapes shapes;  // in memory: the compiler is not told that all of it is read
  _tile_loadconfig(&shapes);
}

/// The system saves no tiles of a thread that has none.
MEGATRON_AMX void end_amx() {
  _tile_release();
}

/// A panel that is not there is the first one again, its sums go unused.
MEGATRON_AMX void multiply_amx(const Panels& panels, Sums sums, bool add) {
  const BFloat16 *a = panels.a, *b = panels.b;
  const bool two_rows = panels.rows > 1, two_columns = panels.columns > 1;
  const std::int64_t second_a = two_rows ? panels.a_stride : 0, second_b = two_columns ? panels.b_stride : 0;
  const std::int64_t a_bytes = panels.a_row * static_cast<std::int64_t>(sizeof(BFloat16));
  const std::int64_t row_bytes = sums.stride * static_cast<std::int64_t>(sizeof(float));
  float* const right = sums.data + (two_columns ? kWidth : 0);
  const std::int64_t down = two_rows ? kWidth * sums.stride : 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the loads below do not tell the compiler what they read
  if (add) {
    _tile_loadd(0, sums.data, row_bytes);
    _tile_loadd(1, right, row_bytes);
    _tile_loadd(2, sums.data + down, row_bytes);
    _tile_loadd(3, right + down, row_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  constexpr int kSecondCache = 2;  // rows that are multiples of 4 KiB apart would push each other out of the first
  const BFloat16* next = panels.a_next;
  for (std::int64_t i = 0; i < panels.depth; ++i, a += panels.a_tile, b += kTileElements) {
    if (next != nullptr) {
      for (std::int64_t row = 0; row < kWidth; ++row) {
        __builtin_prefetch(next + row * panels.a_row, 0, kSecondCache);
        __builtin_prefetch(next + row * panels.a_row + second_a, 0, kSecondCache);
      }
      next += panels.a_tile;
    }
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + second_b, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + second_a, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums.data, row_bytes);
  if (two_columns) _tile_stored(1, right, row_bytes);
  if (two_rows) _tile_stored(2, sums.data + down, row_bytes);
  if (two_rows && two_columns) _tile_stored(3, right + down, row_bytes);
}

/// Half the rows of a panel, so that the sums stay in registers.
template <int columns>
MEGATRON_AVX512_BF16 void multiply_half_panel(const Panels& panels, int first, Sums sums, bool add) {
  constexpr int rows = 8;
  float* const to = sums.data + first * sums.stride;
  __m512 own[rows][columns];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < columns; ++j) {
      own[i][j] = add ? _mm512_loadu_ps(to + i * sums.stride + j * kWidth) : _mm512_setzero_ps();
    }
  }
  const BFloat16 *a = panels.a + first * panels.a_row, *b = panels.b;
  for (std::int64_t tile = 0; tile < panels.depth; ++tile, a += panels.a_tile) {
    for (std::int64_t pair = 0; pair < kDepth; pair += 2, b += kDepth) {
      __m512bh column[columns];
#pragma GCC unroll 3
      for (int j = 0; j < columns; ++j) column[j] = (__m512bh)_mm512_load_si512(b + j * panels.b_stride);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        std::int32_t both;
        __builtin_memcpy(&both, a + i * panels.a_row + pair, sizeof both);
        const __m512bh row = (__m512bh)_mm512_set1_epi32(both);
#pragma GCC unroll 3
        for (int j = 0; j < columns; ++j) own[i][j] = _mm512_dpbf16_ps(own[i][j], row, column[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < columns; ++j) _mm512_storeu_ps(to + i * sums.stride + j * kWidth, own[i][j]);
  }
}

MEGATRON_AVX512_BF16 void multiply_avx512(const Panels& panels, Sums sums, bool add) {
  for (const int first : {0, 8}) {
    switch (panels.columns) {
      case 1: multiply_half_panel<1>(panels, first, sums, add); break;
      case 2: multiply_half_panel<2>(panels, first, sums, add); break;
      default: multiply_half_panel<3>(panels, first, sums, add); break;
    }
  }
}

MEGATRON_AVX512 inline __m512 load(const float* x, __mmask16 columns) {
  return _mm512_maskz_loadu_ps(columns, x);
}
MEGATRON_AVX512 inline __m512 load(const BFloat16* x, __mmask16 columns) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, x)), 16));
}
MEGATRON_AVX512 inline void store(float* x, __mmask16 columns, __m512 values) {
  _mm512_mask_storeu_ps(x, columns, values);
}
/// Rounds as to_bfloat16 does, but for subnormal numbers, which are 0 here as in products.
MEGATRON_AVX512_BF16 inline void store(BFloat16* x, __mmask16 columns, __m512 values) {
  _mm256_mask_storeu_epi16(x, columns, (__m256i)_mm512_cvtneps_pbh(values));
}

template <class From, class To>
MEGATRON_AVX512_BF16 void store_sums_here(ConstSums sums, std::int64_t rows, std::int64_t columns, const From* from,
                                          std::int64_t from_stride, To* to, std::int64_t to_stride) {
  const __mmask16 there = first_16(columns);
  rows = std::min(rows, kWidth);
  for (std::int64_t row = 0; row < rows; ++row, to += to_stride) {
    __m512 values = _mm512_loadu_ps(sums.data + row * sums.stride);
    if (from != nullptr) values = _mm512_add_ps(load(from + row * from_stride, there), values);
    store(to, there, values);
  }
}

template <class To>
MEGATRON_AVX512_BF16 void store_transposed_here(ConstSums sums, std::int64_t rows, std::int64_t columns, float factor,
                                                To* to, std::int64_t to_stride) {
  __m512i vectors[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) vectors[i] = _mm512_loadu_si512(sums.data + i * sums.stride);
  transpose(vectors);
  const __mmask16 there = first_16(rows);
  for (std::int64_t i = 0; i < std::min(columns, kWidth); ++i) {
    store(to + i * to_stride, there, _mm512_mul_ps(_mm512_castsi512_ps(vectors[i]), _mm512_set1_ps(factor)));
  }
}

void do_nothing() {}

}  // namespace

MEGATRON_AVX512_BF16 void pack_rows(const Source<BFloat16>& source, BFloat16* tiles) {
  pack<true>(source, tiles);
}
MEGATRON_AVX512_BF16 void pack_rows(const Source<float>& source, BFloat16* tiles) {
  pack<true>(source, tiles);
}
MEGATRON_AVX512_BF16 void pack_columns(const Source<BFloat16>& source, BFloat16* tiles) {
  pack<false>(source, tiles);
}
MEGATRON_AVX512_BF16 void pack_columns(const Source<float>& source, BFloat16* tiles) {
  pack<false>(source, tiles);
}

const Kernel& amx_kernel() {
  static constexpr Kernel kernel{.rows = 2, .columns = 2, .begin = begin_amx, .end = end_amx, .multiply = multiply_amx};
  return kernel;
}

const Kernel& avx512_kernel() {
  static constexpr Kernel kernel{
      .rows = 1, .columns = 3, .begin = do_nothing, .end = do_nothing, .multiply = multiply_avx512};
  return kernel;
}

}  // namespace megatron::native
#else
namespace megatron::native {

namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::internal, "native products of bf16: this build is for another processor");
}
template <class From, class To>
void store_sums_here(ConstSums, std::int64_t, std::int64_t, const From*, std::int64_t, To*, std::int64_t) {
  refuse();
}
template <class To>
void store_transposed_here(ConstSums, std::int64_t, std::int64_t, float, To*, std::int64_t) {
  refuse();
}

}  // namespace

void pack_rows(const Source<BFloat16>&, BFloat16*) {
  refuse();
}
void pack_rows(const Source<float>&, BFloat16*) {
  refuse();
}
void pack_columns(const Source<BFloat16>&, BFloat16*) {
  refuse();
}
void pack_columns(const Source<float>&, BFloat16*) {
  refuse();
}
const Kernel& amx_kernel() {
  refuse();
}
const Kernel& avx512_kernel() {
  refuse();
}

}  // namespace megatron::native
#endif

namespace megatron::native {

// Without the attribute, which an instantiation would not have.
template <class To>
void store_transposed(ConstSums sums, std::int64_t rows, std::int64_t columns, float factor, To* to,
                      std::int64_t to_stride) {
  store_transposed_here(sums, rows, columns, factor, to, to_stride);
}
template <class From, class To>
void store_sums(ConstSums sums, std::int64_t rows, std::int64_t columns, const From* from, std::int64_t from_stride,
                To* to, std::int64_t to_stride) {
  store_sums_here(sums, rows, columns, from, from_stride, to, to_stride);
}

template void store_transposed(ConstSums, std::int64_t, std::int64_t, float, float*, std::int64_t);
template void store_transposed(ConstSums, std::int64_t, std::int64_t, float, BFloat16*, std::int64_t);
template void store_sums(ConstSums, std::int64_t, std::int64_t, const float*, std::int64_t, float*, std::int64_t);
template void store_sums(ConstSums, std::int64_t, std::int64_t, const float*, std::int64_t, BFloat16*, std::int64_t);
template void store_sums(ConstSums, std::int64_t, std::int64_t, const BFloat16*, std::int64_t, float*, std::int64_t);
template void store_sums(ConstSums, std::int64_t, std::int64_t, const BFloat16*, std::int64_t, BFloat16*, std::int64_t);

}  // namespace megatron::native
