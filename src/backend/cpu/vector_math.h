// Elementary functions in single precision as branch-free polynomials, so that loops over them vectorise.
//
// Faithful to about one unit in the last place (tests/backend/ops/test_vector_math.cpp measures them). They know
// nothing of errno, rounding modes or signalling NaNs; quiet NaNs and infinities come out as they should.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/ops/normal_tail.h"

namespace megatron {

/// e^x = mantissa · 2^exponent for |x| <= 104, mantissa in about [0.7, 1.42]. NaN passes through.
struct SplitExp {
  float mantissa;
  std::int32_t exponent;
};

inline SplitExp vector_split_exp(float x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693115234375f, ln2_low = 3.19461849e-5f;
  constexpr float round_to_integer = 0x1.8p23f;  // adding it leaves the nearest integer in the low mantissa bits
  const float shifted = x * log2_e + round_to_integer;
  const float n = shifted - round_to_integer;
  const float r = (x - n * ln2_high) - n * ln2_low;
  const float tail = 0.5f + r * (0.166665770f + r * (0.0416665547f + r * (0.00836317307f + r * 0.00139261761f)));
  return {1.0f + (r + r * r * tail),
          std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_to_integer)};
}

/// e^x, over the whole range: 0 for -infinity, +infinity from about 88.7 on, subnormal results included.
inline float vector_exp(float x) {
  x = x < -104.0f ? -104.0f : x;  // NaN fails both comparisons and passes through
  x = x > 89.0f ? 89.0f : x;
  const SplitExp split = vector_split_exp(x);
  // 2^n in two factors: 2^128 is not a float, and results below 2^-126 round only once.
  const std::int32_t half = split.exponent >> 1;
  const float factor1 = std::bit_cast<float>((half + 127) << 23);
  const float factor2 = std::bit_cast<float>((split.exponent - half + 127) << 23);
  return split.mantissa * factor1 * factor2;
}

/// e^x with x taken as -80 below it and as 80 above: no subnormals, no infinities, and less work than vector_exp.
inline float vector_exp_within_80(float x) {
  x = x < -80.0f ? -80.0f : x;
  x = x > 80.0f ? 80.0f : x;
  const SplitExp split = vector_split_exp(x);
  return split.mantissa * std::bit_cast<float>((split.exponent + 127) << 23);
}

/// 1 / (1 + e^-x). tanh(x) = 2 vector_logistic(2x) - 1, so a tanh GELU needs nothing else.
inline float vector_logistic(float x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

struct Normal {
  float cumulative;   ///< P(Z <= z) of a standard normal Z
  float exponential;  ///< e^(-z² / 2), its density times sqrt(2π)
};

/// To 2e-7, and the left tail relative to itself: to 1e-6 where it is above 1e-8, to 5e-6 above 1e-37.
inline Normal vector_normal(float z) {
  const float exponential = vector_exp(-0.5f * z * z);
  const float tail = scaled_normal_tail(1.0f / (1.0f + kNormalTailScale * std::abs(z))) * exponential;
  return {z > 0.0f ? 1.0f - tail : tail, exponential};
}

/// ln x for normal x > 0.
inline float vector_log(float x) {
  constexpr float ln2_high = 0.693115234375f, ln2_low = 3.19461849e-5f;
  // Split x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  constexpr std::int32_t sqrt_half = 0x3F3504F3;
  const std::int32_t offset = std::bit_cast<std::int32_t>(x) - sqrt_half;
  const float n = static_cast<float>(offset >> 23);
  const float f = std::bit_cast<float>((offset & 0x007FFFFF) + sqrt_half) - 1.0f;
  float q = 0.0697161147f;
  q = q * f - 0.114797338f;
  q = q * f + 0.116854199f;
  q = q * f - 0.124256873f;
  q = q * f + 0.142490576f;
  q = q * f - 0.166678023f;
  q = q * f + 0.200007157f;
  q = q * f - 0.249999970f;
  q = q * f + 0.333333312f;
  const float square = f * f;
  return n * ln2_high + (f + (n * ln2_low + square * (f * q - 0.5f)));
}

struct SineCosine {
  float sine, cosine;
};

/// Sine and cosine of the angle 2π · turn / 2^32; the reduction to an eighth of a turn is exact.
inline SineCosine vector_sine_cosine(std::uint32_t turn) {
  constexpr float angle_unit = 1.46291808e-9f;  // 2π / 2^32
  const std::uint32_t quadrant = (turn + (1u << 29)) >> 30;
  const float x = static_cast<float>(static_cast<std::int32_t>(turn - (quadrant << 30))) * angle_unit;
  const float z = x * x;
  const float s = x + x * z * (-0.166666647f + z * (0.00833274827f + z * -0.000195878909f));
  const float c = 1.0f + z * (-0.5f + z * (0.0416666647f + z * (-0.00138883030f + z * 2.45479421e-5f)));
  const bool swapped = (quadrant & 1) != 0;
  const float sine = swapped ? c : s, cosine = swapped ? s : c;
  return {(quadrant & 2) != 0 ? -sine : sine, ((quadrant + 1) & 2) != 0 ? -cosine : cosine};
}

}  // namespace megatron
