// Choices of experts, added up over calls, and the bias that balances them: by hand.
#include <cmath>
#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {
constexpr double kNoGap = std::numeric_limits<double>::infinity();
}

TEST_CASE("tally_routes: choices, drops and the least gap add up over calls", "[experts]") {
  const Backend backend = make_test_backend();
  // Two samples of four tokens, each of which chose two of three experts.
  const Owned<std::int32_t> counts({2, 3}, std::vector<std::int32_t>{4, 3, 1, 2, 2, 4});
  const Owned<float> gaps({8}, std::vector<float>{0.5f, 0.25f, 1, NAN, 0.125f, 3, 0.5f, 0.75f});
  Owned<double> choices({4}, 0.0), least({1}, kNoGap);
  const auto call = [&](const Owned<float>& of, std::int64_t capacity) {
    backend.ops->tally_routes(
        {.counts = counts, .gaps = of, .capacity = capacity, .choices = choices, .least_gap = least});
  };
  call(gaps, 3);
  CHECK(choices ==
        Owned<double>({4}, std::vector<double>{6, 5, 5, 2}));  // one of the first expert's, one of the last's
  CHECK(least[0] == 0.125);
  call(Owned<float>({8}, 2.0f), 4);  // room for all, and no smaller gap
  CHECK(choices == Owned<double>({4}, std::vector<double>{12, 10, 10, 2}));
  CHECK(least[0] == 0.125);
  call(Owned<float>({8}, std::numeric_limits<float>::infinity()), 1);
  CHECK(choices == Owned<double>({4}, std::vector<double>{18, 15, 15, 2 + 3 + 2 + 1 + 1 + 3}));
  CHECK(least[0] == 0.125);
}

TEST_CASE("tally_routes: no gap where all experts are chosen", "[experts]") {
  const Backend backend = make_test_backend();
  const Owned<std::int32_t> counts({1, 2}, 40);
  Owned<double> choices({3}, 0.0), least({1}, kNoGap);
  backend.ops->tally_routes({.counts = counts,
                             .gaps = Owned<float>({40}, std::numeric_limits<float>::infinity()),
                             .capacity = 40,
                             .choices = choices,
                             .least_gap = least});
  CHECK(least[0] == kNoGap);
}

TEST_CASE("tally_routes: gaps of many rows, and none", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t experts = 300, rows = 1000;
  const Owned<std::int32_t> counts({1, experts}, 7);
  Owned<float> gaps = random_tensor({rows}, 3, 1, 5);
  Owned<double> choices({experts + 1}, 1.0), least({1}, kNoGap);
  for (const std::int64_t at : {std::int64_t{0}, rows / 2, rows - 1}) {
    Owned<float> with_least = gaps;
    with_least[at] = 1e-7f;
    least = Owned<double>({1}, kNoGap);
    backend.ops->tally_routes(
        {.counts = counts, .gaps = with_least, .capacity = 5, .choices = choices, .least_gap = least});
    CHECK(least[0] == double{1e-7f});
  }
  CHECK(choices[0] == 1 + 3 * 7);
  CHECK(choices[static_cast<std::size_t>(experts)] == 1 + 3 * 2 * 300);
  const Owned<std::int32_t> nothing({0, experts});
  backend.ops->tally_routes(
      {.counts = nothing, .gaps = Owned<float>({0}), .capacity = 5, .choices = choices, .least_gap = least});
  CHECK(choices[0] == 1 + 3 * 7);
  CHECK(least[0] == double{1e-7f});
}

TEST_CASE("shift_choice_bias: moves towards the mean and not where it is met", "[experts]") {
  const Backend backend = make_test_backend();
  Owned<float> bias({4}, std::vector<float>{0, 0.5f, -0.25f, 1});
  const auto shift = [&](std::vector<double> choices, float rate) {
    const Owned<double> given({4}, std::move(choices));
    backend.ops->shift_choice_bias({.choices = given, .rate = rate, .bias = bias});
  };
  shift({10, 2, 4, 0}, 0.25f);  // the mean is 4
  CHECK(bias == Owned<float>({4}, std::vector<float>{-0.25f, 0.75f, -0.25f, 1.25f}));
  shift({3, 3, 3, 3}, 0.25f);
  CHECK(bias == Owned<float>({4}, std::vector<float>{-0.25f, 0.75f, -0.25f, 1.25f}));
  // A mean that is no integer, between numbers that f32 does not tell apart.
  shift({1e12, 1e12 + 1, 1e12, 1e12}, 0.25f);
  CHECK(bias == Owned<float>({4}, std::vector<float>{0, 0.5f, 0, 1.5f}));
}
