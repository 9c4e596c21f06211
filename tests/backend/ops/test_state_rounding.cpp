// States of updates in bf16: the updates are those of f32 states, which are then rounded stochastically. That
// rounding's definition, what stays, its mean, and the same bits in whatever parts.
#include <cmath>
#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/core/half.h"
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Rounds by the draw that row and column of the whole matrix have.
BFloat16 rounded_at(float x, std::uint64_t key, std::int64_t row, std::int64_t column) {
  const PhiloxCounter words =
      philox4x32<7>({static_cast<std::uint32_t>(column / 8), static_cast<std::uint32_t>(row), 0, 0}, key);
  const std::int64_t lane = column % 8;
  const std::uint32_t draw = (words[static_cast<std::size_t>(lane / 2)] >> (16 * (lane % 2))) & 0xFFFFu;
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + draw) >> 16)};
}

/// Rounds x, by an update of which it is the gradient and becomes the state y.
void round_state(Ops& ops, ConstTensor x, Tensor y, const StateDraws& draws) {
  Owned<float> value({x.elements()});
  const Owned<float> one({1}, 1), zero({1});
  ops.fill(y, 0);
  ops.sgd({.value = value, .gradient = x, .m = y, .draws = draws, .clip_factor = one, .skip = zero, .momentum = 0});
}

/// n numbers of a width in bf16.
Owned<BFloat16> random_state(Ops& ops, std::int64_t n, std::uint64_t seed, double width, double mean = 0) {
  Owned<BFloat16> state({n});
  ops.copy(random_tensor({n}, seed, width, mean), state);
  return state;
}

}  // namespace

TEST_CASE("states in bf16: updates are those of f32 states, then rounded") {
  const Backend backend = make_test_backend();
  Ops& ops = *backend.ops;
  const Owned<float> factor({1}, 0.5f);
  for (const auto& [columns, first, first_column] : std::vector<std::array<std::int64_t, 3>>{
           {1, 777, 3}, {24, 48, 16}, {301, 777, 3}, {4096, 776, 0}, {4096, 9, 8}}) {
    const StateDraws draws{.keys = {random_key(1, 2, 3), random_key(1, 2, 4)},
                           .first = first,
                           .columns = columns,
                           .first_row = 2,
                           .first_column = first_column};
    for (const std::int64_t n : {1, 130, 5003}) {
      const Owned<float> gradient = random_tensor({n}, 1);
      for (const char* const rule : {"adamw", "sgd", "lion"}) {
        for (const float skip : {0.0f, 1.0f}) {
          CAPTURE(columns, first, n, rule, skip);
          const Owned<float> skips({1}, skip);
          Owned<float> value = random_tensor({n}, 2), expected = value, wide_m({n}), wide_v({n});
          Owned<BFloat16> m = random_state(ops, n, 3, 0.1), v = random_state(ops, n, 4, 0.01, 0.02);
          const Owned<BFloat16> m_before = m, v_before = v;
          ops.copy(m, wide_m);
          ops.copy(v, wide_v);
          const auto update = [&](Tensor of, Tensor its_m, Tensor its_v) {
            const float rate = 0.1f, decay = 0.05f;
            if (rule == std::string("adamw")) {
              ops.adamw({of, gradient, its_m, its_v, draws, factor, skips, rate, 0.9f, 0.99f, 1e-6f, decay, 3});
            } else if (rule == std::string("sgd")) {
              ops.sgd({of, gradient, its_m, draws, factor, skips, rate, 0.9f, decay});
            } else {
              ops.lion({of, gradient, its_m, draws, factor, skips, rate, 0.9f, 0.99f, decay});
            }
          };
          update(value, m, v);
          update(expected, wide_m, wide_v);
          CHECK(value == expected);
          std::int64_t wrong = 0, stayed = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t row = 2 + (first + i) / columns, column = first_column + (first + i) % columns;
            wrong += m[i] == rounded_at(wide_m[i], draws.keys[0], row, column) ? 0 : 1;
            wrong += v[i] == rounded_at(wide_v[i], draws.keys[1], row, column) ? 0 : 1;
            stayed += m[i] == m_before[i] && v[i] == v_before[i] ? 1 : 0;
          }
          CHECK(wrong == 0);
          if (skip != 0) CHECK(stayed == n);
          if (skip == 0) CHECK(stayed < (n + 1) / 2);
        }
      }
    }
  }
}

TEST_CASE("stochastic rounding: parts of boxes follow their definition") {
  const Backend backend = make_test_backend();
  const std::uint64_t key = random_key(1, 2, 3);
  for (const std::int64_t columns : {1, 5, 8, 64, 301, 4096}) {
    for (const std::int64_t first_column : {0, 3, 16, 1001}) {
      for (const std::int64_t first : {0, 1, 8, 777}) {
        for (const std::int64_t n : {0, 1, 31, 128, 5003}) {
          CAPTURE(columns, first_column, first, n);
          const std::int64_t first_row = columns == 64 ? 100000 : 2;
          const Owned<float> x = random_tensor({n}, static_cast<std::uint64_t>(n + first), 3);
          Owned<BFloat16> y({n});
          round_state(*backend.ops, x, y,
                      {.keys = {key},
                       .first = first,
                       .columns = columns,
                       .first_row = first_row,
                       .first_column = first_column});
          std::int64_t wrong = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t row = (first + i) / columns, column = (first + i) % columns;
            wrong += y[i] == rounded_at(x[i], key, first_row + row, first_column + column) ? 0 : 1;
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("stochastic rounding: places that are not aligned get the same bits") {
  const Backend backend = make_test_backend();
  const std::int64_t n = 4096;
  const Owned<float> x = random_tensor({n}, 1);
  Owned<BFloat16> whole({n}), parts({n});
  round_state(*backend.ops, x, whole, {.keys = {7}, .columns = 512});
  for (const std::int64_t step : {1, 3, 8, 100, 1000}) {
    std::fill_n(&parts[0], n, BFloat16{0});
    for (std::int64_t first = 0; first < n; first += step) {
      const std::int64_t count = std::min(step, n - first);
      round_state(*backend.ops, x.tensor().slice(0, first, count), parts.tensor().slice(0, first, count),
                  {.keys = {7}, .first = first, .columns = 512});
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("stochastic rounding: what bf16 can hold stays, bit by bit") {
  const Backend backend = make_test_backend();
  Owned<BFloat16> all({65536}), again({65536});
  for (std::int64_t i = 0; i < 65536; ++i) all[i] = {static_cast<std::uint16_t>(i)};
  Owned<float> widened({65536});
  backend.ops->copy(all, widened);
  round_state(*backend.ops, widened, again, {.keys = {3}, .columns = 65536});
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < 65536; ++i) {
    if (std::isnan(to_float(all[i]))) {
      wrong += std::isnan(to_float(again[i])) ? 0 : 1;
    } else if (i == 0x8000) {
      wrong += to_float(again[i]) == 0 ? 0 : 1;  // the update's sums make -0 into 0
    } else {
      wrong += again[i] == all[i] ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  // A NaN whose payload bf16 cannot hold is still one.
  const float payload = std::bit_cast<float>(0x7F800001u), largest = std::numeric_limits<float>::max();
  const Owned<float> odd({3}, {payload, largest, -largest});
  Owned<BFloat16> y({3});
  round_state(*backend.ops, odd, y, {.keys = {3}, .columns = 3});
  CHECK(std::isnan(to_float(y[0])));
  CHECK((y[1].bits == 0x7F7F || y[1].bits == 0x7F80));
  CHECK((y[2].bits == 0xFF7F || y[2].bits == 0xFF80));
}

TEST_CASE("stochastic rounding: the mean of many draws is the number itself") {
  const Backend backend = make_test_backend();
  constexpr std::int64_t n = 1 << 20;
  for (const float x : {1.001f, -0.3f, 3e-7f, 1e-39f, -2e20f}) {
    CAPTURE(x);
    const Owned<float> same({n}, x);
    Owned<BFloat16> y({n});
    round_state(*backend.ops, same, y, {.keys = {random_key(4, 5, 6)}, .columns = 1024});
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    std::int64_t upper = 0, elsewhere = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      upper += y[i].bits == (bits >> 16) + 1 ? 1 : 0;
      elsewhere += y[i].bits == (bits >> 16) || y[i].bits == (bits >> 16) + 1 ? 0 : 1;
    }
    CHECK(elsewhere == 0);
    // Five standard deviations of the mean of n draws.
    const double share = static_cast<double>(bits & 0xFFFFu) / 65536, found = static_cast<double>(upper) / n;
    CHECK(std::abs(found - share) < 5 * std::sqrt(share * (1 - share) / n));
  }
}

TEST_CASE("stochastic rounding: other keys, rows and columns draw otherwise") {
  const Backend backend = make_test_backend();
  const Owned<float> half({1024}, std::bit_cast<float>(0x3F808000u));  // in the middle between two
  const auto drawn = [&](std::uint64_t key, std::int64_t row, std::int64_t column) {
    Owned<BFloat16> y({1024});
    round_state(*backend.ops, half, y, {.keys = {key}, .columns = 1024, .first_row = row, .first_column = column});
    return y;
  };
  const auto reference = drawn(1, 0, 0);
  for (const auto& other : {drawn(2, 0, 0), drawn(1, 1, 0), drawn(1, 0, 1024)}) {
    std::int64_t same = 0;
    for (std::int64_t i = 0; i < 1024; ++i) same += other[i] == reference[i] ? 1 : 0;
    CHECK(std::abs(same - 512) < 5 * 16);  // five standard deviations
  }
}
