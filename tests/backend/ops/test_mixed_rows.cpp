// Two parts of a row mixed by weights that the row decides, and noise of rows, against doubles.
#include <cmath>
#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "backend/ops/row_widths.h"
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Rows and their logits, from far to the left to far to the right.
template <class T>
struct Rows {
  Rows(std::int64_t h_, std::int64_t each_, bool with_bias)
      : h(h_),
        each(each_),
        logits(random_tensor({n, each_}, 1, 4)),
        bias(random_tensor<T>({each_}, 2)),
        a(random_tensor<T>({n, h_}, 3)),
        b(random_tensor<T>({n, h_}, 4)),
        dy(random_tensor<T>({n, h_}, 5)),
        biased(with_bias) {
    logits[0] = 80;  // whose weights are 1 and, to rounding, 0
    logits[each] = -80;
  }
  ConstTensor bias_or_none() const { return biased ? ConstTensor(bias) : ConstTensor(); }
  bool two() const { return each == 2; }

  /// The weight of b, and of a.
  double weight(std::int64_t row, bool of_b) const {
    const auto logit = [&](std::int64_t i) { return logits.value(row * each + i) + (biased ? bias.value(i) : 0); };
    if (!two()) return of_b ? 1 / (1 + std::exp(-logit(0))) : 1;
    return 1 / (1 + std::exp(logit(of_b ? 0 : 1) - logit(of_b ? 1 : 0)));
  }

  static constexpr std::int64_t n = 13;
  std::int64_t h, each;
  Owned<float> logits;
  Owned<T> bias, a, b, dy;
  bool biased;
};

}  // namespace

TEMPLATE_TEST_CASE("mix_rows_forward: a sigmoid of one logit, a softmax of two", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    for (const std::int64_t each : {1, 2}) {
      for (const bool biased : {false, true}) {
        CAPTURE(h, each, biased);
        Rows<TestType> rows(h, each, biased);
        std::vector<double> want = zeros(rows.n * h);
        for (std::int64_t i = 0; i < rows.n * h; ++i) {
          want[static_cast<std::size_t>(i)] =
              rows.weight(i / h, false) * rows.a.value(i) + rows.weight(i / h, true) * rows.b.value(i);
        }
        Owned<TestType> y({rows.n, h}, narrow<TestType>(9.0f));
        backend.ops->mix_rows_forward(
            {.logits = rows.logits, .bias = rows.bias_or_none(), .a = rows.a, .b = rows.b, .y = y});
        CHECK(difference(y, want, 3e-7) == "");
        // In place of either part.
        for (const bool in_a : {true, false}) {
          Rows<TestType> again(h, each, biased);
          const Tensor place = in_a ? again.a : again.b;
          backend.ops->mix_rows_forward(
              {.logits = again.logits, .bias = again.bias_or_none(), .a = again.a, .b = again.b, .y = place});
          CHECK((in_a ? again.a : again.b) == y);
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("mix_rows_backward: gradients of both parts and of the logits", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    for (const std::int64_t each : {1, 2}) {
      CAPTURE(h, each);
      Rows<TestType> rows(h, each, each == 2);
      std::vector<double> da = zeros(rows.n * h), db = zeros(rows.n * h), dlogits = zeros(rows.n * each);
      double largest = 0;
      for (std::int64_t row = 0; row < rows.n; ++row) {
        const double of_a = rows.weight(row, false), of_b = rows.weight(row, true);
        double product = 0, terms = 0;
        for (std::int64_t i = row * h; i < (row + 1) * h; ++i) {
          const double dy = rows.dy.value(i), difference = rows.b.value(i) - (rows.two() ? rows.a.value(i) : 0);
          da[static_cast<std::size_t>(i)] = of_a * dy;
          db[static_cast<std::size_t>(i)] = of_b * dy;
          product += dy * difference;
          terms += std::abs(dy * difference);
        }
        const double slope = rows.two() ? of_a * of_b : of_b * (1 - of_b);
        dlogits[static_cast<std::size_t>(row * each + each - 1)] = slope * product;
        if (rows.two()) dlogits[static_cast<std::size_t>(row * each)] = -slope * product;
        largest = std::max(largest, terms);
      }
      // Each gradient in place of its part.
      Owned<float> got({rows.n, each}, 9.0f);
      backend.ops->mix_rows_backward({.logits = rows.logits,
                                      .bias = rows.bias_or_none(),
                                      .a = rows.two() ? rows.a.tensor() : Tensor(),
                                      .b = rows.b,
                                      .dy = rows.dy,
                                      .da = rows.two() ? rows.a.tensor() : Tensor(),
                                      .db = rows.b,
                                      .dlogits = got});
      if (rows.two()) CHECK(difference(rows.a, da, 3e-7) == "");
      CHECK(difference(rows.b, db, 3e-7) == "");
      CHECK(difference(got, dlogits, 1e-7, 10 * largest) == "");
    }
  }
}

TEST_CASE("mix_rows: NaN in a logit or a part reaches the result", "[experts]") {
  const Backend backend = make_test_backend();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Owned<float> a({3, 4}, 1.0f), logits({3, 1}, std::vector<float>{nan, 0, 0});
  Owned<float> b({3, 4}, 2.0f), y({3, 4});
  b[4] = nan;
  backend.ops->mix_rows_forward({.logits = logits, .bias = {}, .a = a, .b = b, .y = y});
  for (std::int64_t i = 0; i < 12; ++i) CHECK(std::isnan(y[i]) == (i <= 4));
}

TEMPLATE_TEST_CASE("jitter_rows: factors by sample, position and element, set or added", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  const std::int64_t s = 3, b = 4;
  const Owned<std::int32_t> positions = counting_ids(s, 7);
  for (const std::int64_t h : kRowWidths) {
    for (const bool accumulate : {false, true}) {
      CAPTURE(h, accumulate);
      const auto x = random_tensor<TestType>({s, b, h}, 1);
      auto y = random_tensor<TestType>({s, b, h}, 2);
      std::vector<double> want = zeros(s * b * h);
      for (std::int64_t i = 0; i < s * b * h; ++i) {
        const auto row = static_cast<std::uint32_t>(i / h), element = static_cast<std::uint32_t>(i % h);
        const std::uint32_t word =
            philox4x32<7>({element / 8, 7 + row / 4, 0, 5 + row % 4}, 11)[element % 8 / 2] >> (element % 2 * 16);
        const double factor = 1 + 0.25 * ((2.0 * (word & 0xFFFFu) + 1) / 65536 - 1);
        CHECK((factor > 0.75 && factor < 1.25));
        want[static_cast<std::size_t>(i)] = factor * x.value(i) + (accumulate ? y.value(i) : 0);
      }
      const Jitter jitter{.amount = 0.25f, .key = 11, .positions = positions, .first_sample = 5};
      backend.ops->jitter_rows({.x = x, .y = y, .accumulate = accumulate, .jitter = jitter});
      CHECK(difference(y, want, 3e-7) == "");
      Owned<TestType> in_place = x, apart({s, b, h});
      backend.ops->jitter_rows({.x = x, .y = apart, .jitter = jitter});
      backend.ops->jitter_rows({.x = in_place, .y = in_place, .jitter = jitter});
      CHECK(in_place == apart);
    }
  }
}

TEST_CASE("jitter_rows: factors fill their range evenly and amount 0 does nothing", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 8, b = 8, h = 256;
  const Owned<std::int32_t> positions = counting_ids(s);
  const Owned<float> ones({s, b, h}, 1.0f);
  Owned<float> y({s, b, h});
  backend.ops->jitter_rows({.x = ones, .y = y, .jitter = {.amount = 0.5f, .key = 3, .positions = positions}});
  std::vector<int> tenths(10);
  double sum = 0;
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    sum += y.value(i);
    ++tenths.at(static_cast<std::size_t>((y.value(i) - 0.5) * 10));
  }
  const auto count = static_cast<double>(y.elements());
  CHECK(sum / count == Approx(1).margin(5 * 0.5 / std::sqrt(3 * count)));
  for (const int tenth : tenths) CHECK(tenth == Approx(count / 10).margin(5 * std::sqrt(count * 0.09)));
  backend.ops->jitter_rows({.x = ones, .y = y, .jitter = {}});
  CHECK(y == ones);
}

TEST_CASE("mixed rows: no rows are no error", "[experts]") {
  const Backend backend = make_test_backend();
  Owned<float> none({0, 8}), logits({0, 2}), no_samples({3, 0, 8});
  backend.ops->mix_rows_forward({.logits = logits, .bias = {}, .a = none, .b = none, .y = none});
  backend.ops->mix_rows_backward(
      {.logits = logits, .bias = {}, .a = none, .b = none, .dy = none, .da = none, .db = none, .dlogits = logits});
  const Owned<std::int32_t> positions = counting_ids(3);
  backend.ops->jitter_rows({.x = no_samples, .y = no_samples, .jitter = {.amount = 0.1f, .positions = positions}});
}
