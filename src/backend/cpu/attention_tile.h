// Arithmetic on one tile of attention scores (a block of queries by a block of keys, row-major), row by row.
//
// Scores are in units of log2: q is packed with scale · log2(e) multiplied in, so that probabilities are powers of two.
// A row is worked on from column `low` to `high` only and is 0 elsewhere afterwards. Rows are padded by one vector:
// the last vector of a row may reach past `high`, where it finds -infinity, which becomes probability 0.
// Knows pointers only, no tensors and no masks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/attention_problem.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/sgemm.h"
#include "base/core/half.h"

namespace megatron::attention {

#if defined(__AVX512F__)
inline constexpr std::int64_t kLanes = 16;
#elif defined(__AVX__)
inline constexpr std::int64_t kLanes = 8;
#else
inline constexpr std::int64_t kLanes = 4;
#endif
/// Vectors as GCC and Clang know them. Loops over floats would do if compilers summed and took maxima in lanes.
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using IntegerLanes [[gnu::vector_size(kLanes * sizeof(float))]] = std::int32_t;

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Floats from one row of a tile to the next: padded, and not a power of two (rows would share cache sets).
inline constexpr std::int64_t kTileStride = kKeyBlock + 16;
static_assert(kTileStride >= kKeyBlock + kLanes);

inline Lanes load(const float* x) {
  Lanes value;
  std::memcpy(&value, x, sizeof value);
  return value;
}
inline void store(float* x, Lanes value) {
  std::memcpy(x, &value, sizeof value);
}
/// Asks for memory, to have it in the nearest cache. Any address will do.
inline void prefetch(const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}
inline Lanes maximum(Lanes a, Lanes b) {
  return a > b ? a : b;
}

/// 2^x = (quotient · fraction + 1) · power for -127 <= x < 128, NaN for NaN.
struct SplitPower {
  Lanes quotient, fraction, power;
};
inline SplitPower split_exp2(Lanes x) {
  const Lanes round_to_integer = Lanes{} + 0x1.8p23f;  // adding it leaves the nearest integer in the low mantissa bits
  const Lanes shifted = x + round_to_integer;
  const Lanes f = x - (shifted - round_to_integer);
  // Minimax for 2^f on [-1/2, 1/2], relative error 2e-9 (Remez).
  Lanes p = f * 1.5345812e-4f + 1.3399931e-3f;
  p = p * f + 9.6184890e-3f;
  p = p * f + 5.5503288e-2f;
  p = p * f + 2.4022647e-1f;
  p = p * f + 6.9314721e-1f;
  IntegerLanes bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127) << 23;  // shifts out what round_to_integer left above the integer
  Lanes power;
  std::memcpy(&power, &bits, sizeof power);
  return {p, f, power};
}

/// 2^x to one unit in the last place for x < 128; 0 below about -126.5 (no subnormals), NaN for NaN.
inline Lanes exp2_lanes(Lanes x) {
  const SplitPower split = split_exp2(x < -127.0f ? Lanes{} - 127.0f : x);
  return (split.quotient * split.fraction + 1.0f) * split.power;
}

/// 2^x - 1 for |x| <= 40, relative to itself as exact as 2^x; NaN for NaN.
inline Lanes exp2_less_1_lanes(Lanes x) {
  const SplitPower split = split_exp2(x);
  return split.quotient * split.fraction * split.power + (split.power - 1.0f);
}

template <std::int64_t distance, std::size_t... i>
inline Lanes rotated(Lanes x, std::index_sequence<i...>) {
  return __builtin_shufflevector(x, x, ((static_cast<std::int64_t>(i) + distance) % kLanes)...);
}

/// All lanes combined pairwise: each half of them with the other, until every lane holds the result.
template <std::int64_t half = kLanes / 2, class Operation>
inline float fold(Lanes x, Operation operation) {
  x = operation(x, rotated<half>(x, std::make_index_sequence<kLanes>{}));
  if constexpr (half > 1) {
    return fold<half / 2>(x, operation);
  } else {
    return x[0];
  }
}
inline float sum_of(Lanes x) {
  return fold(x, [](Lanes a, Lanes b) { return a + b; });
}
inline float maximum_of(Lanes x) {
  return fold(x, maximum);
}

/// Columns [low, high) of a row of the tile.
struct Columns {
  std::int64_t low = 0, high = 0;
  bool empty() const { return low >= high; }
};

/// A row's visible keys as columns of the tile whose first key is tile.low.
inline Columns columns_of(KeyRange visible, KeyRange tile) {
  return {std::max(visible.low, tile.low) - tile.low, std::min(visible.high, tile.high) - tile.low};
}

/// Scores in units of log2 become softcap · tanh(score / softcap), in the same units. If `wants_slopes`, slopes gets
/// the derivative 1 - tanh² of the row's columns from `low` on, up to a vector too many.
template <bool wants_slopes>
inline void cap_row(float* scores, Columns columns, float softcap, float* slopes) {
  const float largest = softcap * kLog2E, twice_log2 = 2 / softcap;
  for (std::int64_t j = columns.low; j < columns.high; j += kLanes) {
    Lanes x = load(scores + j) * twice_log2;  // e^(2 score / softcap) = 2^x; tanh is 1 from x = 27 on
    x = x > 30.0f ? Lanes{} + 30.0f : x;
    x = x < -30.0f ? Lanes{} - 30.0f : x;
    const Lanes e = exp2_less_1_lanes(x), share = e / (e + 2.0f);
    store(scores + j, largest * share);
    if constexpr (wants_slopes) store(slopes + j - columns.low, 1.0f - share * share);
  }
}

/// scores[j] += slope · (first_distance + j), ALiBi: first_distance = position of column 0's key - query position.
inline void add_slope(float* scores, Columns columns, float slope, std::int64_t first_distance) {
  const auto offset = static_cast<std::int32_t>(first_distance);
  const auto low = static_cast<std::int32_t>(columns.low), high = static_cast<std::int32_t>(columns.high);
  for (std::int32_t j = low; j < high; ++j) scores[j] += slope * static_cast<float>(offset + j);
}

/// values[j] *= factors[j - low] in these columns.
inline void multiply_row(const float* factors, Columns columns, float* values) {
#pragma omp simd
  for (std::int64_t j = columns.low; j < columns.high; ++j) values[j] *= factors[j - columns.low];
}

/// -infinity after the last column, as far as the row's last vector reaches.
inline void close_row(float* scores, Columns columns) {
  const std::int64_t end = columns.low + (columns.high - columns.low + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t j = columns.high; j < end; ++j) scores[j] = -kInfinity;
}

/// 0 in the columns of [0, width) that are not the row's.
inline void clear_outside(float* row, Columns columns, std::int64_t width) {
  if (columns.empty()) columns = {0, 0};
  std::fill(row, row + columns.low, 0.0f);
  std::fill(row + columns.high, row + width, 0.0f);
}

/// The largest of a closed row's scores and `so_far`.
inline float row_maximum(const float* scores, Columns columns, float so_far) {
  Lanes m0 = Lanes{} + so_far, m1 = m0, m2 = m0, m3 = m0;
  std::int64_t j = columns.low;
  for (; j + 4 * kLanes <= columns.high; j += 4 * kLanes) {
    m0 = maximum(load(scores + j), m0);
    m1 = maximum(load(scores + j + kLanes), m1);
    m2 = maximum(load(scores + j + 2 * kLanes), m2);
    m3 = maximum(load(scores + j + 3 * kLanes), m3);
  }
  for (; j < columns.high; j += kLanes) m0 = maximum(load(scores + j), m0);
  return maximum_of(maximum(maximum(m0, m1), maximum(m2, m3)));
}

/// A closed row's scores become 2^(score - reference); returns their sum.
inline float exponentiate(float* scores, Columns columns, float reference) {
  Lanes sum0{}, sum1{};
  std::int64_t j = columns.low;
  for (; j + 2 * kLanes <= columns.high; j += 2 * kLanes) {
    const Lanes p0 = exp2_lanes(load(scores + j) - reference), p1 = exp2_lanes(load(scores + j + kLanes) - reference);
    store(scores + j, p0);
    store(scores + j + kLanes, p1);
    sum0 += p0;
    sum1 += p1;
  }
  for (; j < columns.high; j += kLanes) {
    const Lanes p = exp2_lanes(load(scores + j) - reference);
    store(scores + j, p);
    sum0 += p;
  }
  return sum_of(sum0 + sum1);
}

/// One row of the backward pass. In: a closed row of scores and dprobabilities = dout · vᵀ. Out: scores become the
/// dropped-out probabilities (the factor of dout in dv), dprobabilities the gradient of the scores,
/// p · (multiplier · dprobability - delta) with p = 2^(score - reference). multipliers: of the row's columns from `low`
/// on, read only if `dropout`.
template <bool dropout>
inline void differentiate(float* scores, float* dprobabilities, const float* multipliers, Columns columns,
                          float reference, float delta) {
  for (std::int64_t j = columns.low; j < columns.high; j += kLanes) {
    const Lanes p = exp2_lanes(load(scores + j) - reference);
    if constexpr (dropout) {
      const Lanes multiplier = load(multipliers + j - columns.low);
      store(scores + j, p * multiplier);
      store(dprobabilities + j, p * (multiplier * load(dprobabilities + j) - delta));
    } else {
      store(scores + j, p);
      store(dprobabilities + j, p * (load(dprobabilities + j) - delta));
    }
  }
}

inline float dot(std::int64_t size, const float* x, const float* y) {
  Lanes lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) lanes += load(x + i) * load(y + i);
  float sum = sum_of(lanes);
  for (; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

/// Rows of elements of any type, `stride` elements from one to the next.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
};

/// y[rows, columns] = factor · x, between any row strides and element types.
template <class From, class To>
void copy_rows(std::int64_t rows, std::int64_t columns, float factor, Rows<From> x, Rows<To> y) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const From* from = x.data + row * x.stride;
    To* to = y.data + row * y.stride;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) to[i] = narrow<To>(factor * wide(from[i]));
  }
}

/// Rows `first`... of one head of one sample of a [s, b, heads, d] tensor.
template <class T>
Rows<const T> head_rows(const ConstTensor& x, std::int64_t sample, std::int64_t head, std::int64_t first) {
  return {x.as<T>() + first * x.stride(0) + sample * x.stride(1) + head * x.stride(2), x.stride(0)};
}
template <class T>
Rows<T> head_rows(const Tensor& x, std::int64_t sample, std::int64_t head, std::int64_t first) {
  return {x.as<T>() + first * x.stride(0) + sample * x.stride(1) + head * x.stride(2), x.stride(0)};
}

/// The mask row of one query of one head, indexed by key.
inline DropoutRow mask_row(const Dropout& dropout, std::int64_t sample, std::int64_t head, std::int64_t query) {
  return {dropout.key, static_cast<std::uint32_t>(dropout.positions.as<std::int32_t>()[query]),
          static_cast<std::uint32_t>(dropout.first_head + head),
          static_cast<std::uint32_t>(dropout.first_sample + sample)};
}

/// Cuts one block of scratch into pieces that start on cache lines.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : next_(reinterpret_cast<float*>(memory)) {}
  static std::int64_t padded(std::int64_t floats) { return (floats + 15) / 16 * 16; }
  float* take(std::int64_t floats) {
    float* piece = next_;
    next_ += padded(floats);
    return piece;
  }

 private:
  float* next_;
};

}  // namespace megatron::attention
