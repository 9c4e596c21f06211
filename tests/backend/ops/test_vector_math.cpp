#include "backend/cpu/vector_math.h"

#include <limits>

#include "support/catch.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Distance in units in the last place of the exact result.
double ulps(float got, double want) {
  int exponent = 0;
  std::frexp(static_cast<float>(want), &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace

TEST_CASE("vector_exp is faithful over the whole range") {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(88.7f); bits += 1009) {
    for (const float x : {from_bits(bits), -from_bits(bits)}) {
      worst = worst_of(worst, ulps(vector_exp(x), std::exp(static_cast<double>(x))));
    }
  }
  for (float x = -104; x < -87; x += 0.01f) {  // subnormal results
    worst = worst_of(worst, ulps(vector_exp(x), std::exp(static_cast<double>(x))));
  }
  CHECK(worst < 1.5);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(vector_exp(0) == 1);
  CHECK(vector_exp(-infinity) == 0);
  CHECK(vector_exp(infinity) == infinity);
  CHECK(vector_exp(88.73f) == infinity);
  CHECK(vector_exp(-1000) == 0);
  CHECK(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("vector_exp_within_80: faithful between its ends and constant past them") {
  double worst = 0;
  for (float x = -80; x <= 80; x += 0.001f) {
    worst = worst_of(worst, ulps(vector_exp_within_80(x), std::exp(static_cast<double>(x))));
  }
  CHECK(worst < 1.5);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(vector_exp_within_80(0) == 1);
  CHECK(vector_exp_within_80(-infinity) == vector_exp_within_80(-80));
  CHECK(vector_exp_within_80(infinity) == vector_exp_within_80(80));
  CHECK(std::isnan(vector_exp_within_80(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("vector_logistic is right to a few units") {
  double worst = 0;
  for (float x = -80; x < 80; x += 0.003f) {
    worst = worst_of(worst, ulps(vector_logistic(x), 1 / (1 + std::exp(-static_cast<double>(x)))));
  }
  CHECK(worst < 3);
  CHECK(vector_logistic(-1000) == 0);
  CHECK(vector_logistic(1000) == 1);
}

TEST_CASE("vector_normal: right to a few units and relatively in its left tail") {
  double worst = 0, worst_tail = 0, worst_far = 0;
  for (float z = -13; z < 13; z += 0.0007f) {
    const double want = 0.5 * std::erfc(-static_cast<double>(z) / std::sqrt(2.0));
    const Normal got = vector_normal(z);
    const double error = std::abs(static_cast<double>(got.cumulative) - want);
    worst = worst_of(worst, error);
    (z > -5.5f ? worst_tail : worst_far) = worst_of(z > -5.5f ? worst_tail : worst_far, error / want);
  }
  CHECK(worst < 2e-7);
  CHECK(worst_tail < 1e-6);
  CHECK(worst_far < 5e-6);
  CHECK(vector_normal(0).cumulative == Approx(0.5f).epsilon(2e-7));
  CHECK(vector_normal(0).exponential == 1);
  CHECK(vector_normal(-300).cumulative == 0);
  CHECK(vector_normal(300).cumulative == 1);
  CHECK(vector_normal(300).exponential == 0);
  CHECK(std::isnan(vector_normal(std::numeric_limits<float>::quiet_NaN()).cumulative));
}

TEST_CASE("vector_log is faithful for normal numbers") {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000; bits < 0x7F800000; bits += 2003) {
    worst = worst_of(worst, ulps(vector_log(from_bits(bits)), std::log(static_cast<double>(from_bits(bits)))));
  }
  CHECK(worst < 1.5);
  CHECK(vector_log(1) == 0);
}

TEST_CASE("vector_sine_cosine is right all around") {
  double worst = 0;
  for (std::uint64_t turn = 0; turn < (1ull << 32); turn += 10007) {
    const SineCosine got = vector_sine_cosine(static_cast<std::uint32_t>(turn));
    const double angle = static_cast<double>(turn) * (2 * 3.14159265358979323846 / 4294967296.0);
    worst = worst_of(worst, std::abs(static_cast<double>(got.sine) - std::sin(angle)));
    worst = worst_of(worst, std::abs(static_cast<double>(got.cosine) - std::cos(angle)));
  }
  CHECK(worst < 1.5e-7);
}
