#include "backend/cpu/native_tiles.h"

#include <algorithm>
#include <atomic>

#include "base/core/error.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC bug 105593, in its own headers
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

/// A tile's outer indices where each is a row of the matrix: vector i has the depth of index i.
MEGATRON_AVX512 inline void load_contiguous(const Source& source, std::int64_t outer, std::int64_t depth,
                                            __m512i* vectors) {
  const BFloat16* from = source.data + outer * source.stride + depth;
  const __mmask32 there = first_32(source.depth - depth);
  const std::int64_t rows = source.outer - outer;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    vectors[i] = i < rows ? _mm512_maskz_loadu_epi16(there, from + i * source.stride) : _mm512_setzero_si512();
  }
}

/// The same where each is a column: vector i has the pair 2i, 2i + 1 of the depth, of all indices.
MEGATRON_AVX512 inline void load_pairs(const Source& source, std::int64_t outer, std::int64_t depth, __m512i* vectors) {
  const BFloat16* from = source.data + depth * source.stride + outer;
  const __mmask16 there = first_16(source.outer - outer);
  const std::int64_t rows = source.depth - depth;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    __m512i even = _mm512_setzero_si512(), odd = even;
    if (2 * i < rows) even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from + 2 * i * source.stride));
    if (2 * i + 1 < rows)
      odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from + (2 * i + 1) * source.stride));
    vectors[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
}

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

template <bool rows>
MEGATRON_AVX512 void pack(const Source& source, BFloat16* tiles) {
  const std::int64_t depth = (source.depth + kDepth - 1) / kDepth;
  __m512i vectors[kVectors];
  if (source.depth_is_contiguous) {
    for (std::int64_t outer = 0; outer < source.outer; outer += kWidth) {
      for (std::int64_t first = 0; first < source.depth; first += kDepth) {
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
MEGATRON_AMX void multiply_amx(const Panels& panels, float* sums) {
  const std::int64_t panel = panels.depth * kTileElements;
  const BFloat16 *a = panels.a, *b = panels.b;
  const std::int64_t second_a = panels.rows > 1 ? panel : 0, second_b = panels.columns > 1 ? panel : 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the loads below do not tell the compiler what they read
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t i = 0; i < panels.depth; ++i, a += kTileElements, b += kTileElements) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + second_b, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + second_a, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr std::int64_t kTileSums = kWidth * kWidth;
  float* second_row = sums + panels.columns * kTileSums;
  _tile_stored(0, sums, 64);
  if (panels.columns > 1) _tile_stored(1, sums + kTileSums, 64);
  if (panels.rows > 1) _tile_stored(2, second_row, 64);
  if (panels.rows > 1 && panels.columns > 1) _tile_stored(3, second_row + kTileSums, 64);
}

/// Half the rows of a panel, so that the sums stay in registers.
template <int columns>
MEGATRON_AVX512_BF16 void multiply_half_panel(const Panels& panels, int first, float* sums) {
  constexpr int rows = 8;
  const std::int64_t panel = panels.depth * kTileElements;
  __m512 own[rows][columns];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < columns; ++j) own[i][j] = _mm512_setzero_ps();
  }
  const BFloat16 *a = panels.a + first * kDepth, *b = panels.b;
  for (std::int64_t tile = 0; tile < panels.depth; ++tile, a += kTileElements) {
    for (std::int64_t pair = 0; pair < kDepth; pair += 2, b += kDepth) {
      __m512bh column[columns];
#pragma GCC unroll 3
      for (int j = 0; j < columns; ++j) column[j] = (__m512bh)_mm512_load_si512(b + j * panel);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        std::int32_t both;
        __builtin_memcpy(&both, a + i * kDepth + pair, sizeof both);
        const __m512bh row = (__m512bh)_mm512_set1_epi32(both);
#pragma GCC unroll 3
        for (int j = 0; j < columns; ++j) own[i][j] = _mm512_dpbf16_ps(own[i][j], row, column[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < columns; ++j) _mm512_store_ps(sums + (j * kWidth + first + i) * kWidth, own[i][j]);
  }
}

MEGATRON_AVX512_BF16 void multiply_avx512(const Panels& panels, float* sums) {
  for (const int first : {0, 8}) {
    switch (panels.columns) {
      case 1: multiply_half_panel<1>(panels, first, sums); break;
      case 2: multiply_half_panel<2>(panels, first, sums); break;
      default: multiply_half_panel<3>(panels, first, sums); break;
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
/// Rounds as to_bfloat16 does.
MEGATRON_AVX512 inline void store(BFloat16* x, __mmask16 columns, __m512 values) {
  const __m512i bits = _mm512_castps_si512(values), high = _mm512_srli_epi32(bits, 16);
  const __m512i half = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_mask_storeu_epi16(x, columns, _mm512_cvtepi32_epi16(result));
}

template <class From, class To>
MEGATRON_AVX512 void store_sums_here(const float* sums, std::int64_t rows, std::int64_t columns, const From* from,
                                     std::int64_t from_stride, To* to, std::int64_t to_stride) {
  const __mmask16 there = first_16(columns);
  rows = std::min(rows, kWidth);
  for (std::int64_t row = 0; row < rows; ++row, sums += kWidth, to += to_stride) {
    __m512 values = _mm512_load_ps(sums);
    if (from != nullptr) values = _mm512_add_ps(load(from + row * from_stride, there), values);
    store(to, there, values);
  }
}

void do_nothing() {}

}  // namespace

MEGATRON_AVX512 void pack_rows(const Source& source, BFloat16* tiles) {
  pack<true>(source, tiles);
}
MEGATRON_AVX512 void pack_columns(const Source& source, BFloat16* tiles) {
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
void store_sums_here(const float*, std::int64_t, std::int64_t, const From*, std::int64_t, To*, std::int64_t) {
  refuse();
}

}  // namespace

void pack_rows(const Source&, BFloat16*) {
  refuse();
}
void pack_columns(const Source&, BFloat16*) {
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
template <class From, class To>
void store_sums(const float* sums, std::int64_t rows, std::int64_t columns, const From* from, std::int64_t from_stride,
                To* to, std::int64_t to_stride) {
  store_sums_here(sums, rows, columns, from, from_stride, to, to_stride);
}

template void store_sums(const float*, std::int64_t, std::int64_t, const float*, std::int64_t, float*, std::int64_t);
template void store_sums(const float*, std::int64_t, std::int64_t, const float*, std::int64_t, BFloat16*, std::int64_t);
template void store_sums(const float*, std::int64_t, std::int64_t, const BFloat16*, std::int64_t, float*, std::int64_t);
template void store_sums(const float*, std::int64_t, std::int64_t, const BFloat16*, std::int64_t, BFloat16*,
                         std::int64_t);

}  // namespace megatron::native
