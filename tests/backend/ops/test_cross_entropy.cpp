#include <algorithm>
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

constexpr float kInfiniteLogit = std::numeric_limits<float>::infinity();

/// Losses in fp64 and, by central differences, their gradient.
struct ReferenceLoss {
  double total = 0;
  std::vector<double> gradient;  // [n, columns]
};

ReferenceLoss reference_loss(const std::vector<double>& logits, std::int64_t columns, std::int64_t vocab,
                             const Owned<std::int32_t>& targets, const Owned<float>& weights) {
  constexpr double step = 1e-5;
  ReferenceLoss result{0, std::vector<double>(logits.size())};
  for (std::int64_t row = 0; row < targets.elements(); ++row) {
    const double* z = logits.data() + row * columns;
    const double maximum = *std::max_element(z, z + vocab), weight = weights[row];
    double sum = 0;
    for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(z[j] - maximum);
    // The loss where the logit of one column is another: its term of the sum is exchanged.
    const auto loss_with = [&](std::int64_t j, double logit) {
      const double exchanged = sum - std::exp(z[j] - maximum) + std::exp(logit - maximum);
      return weight * (maximum + std::log(exchanged) - (j == targets[row] ? logit : z[targets[row]]));
    };
    result.total += weight * (maximum + std::log(sum) - z[targets[row]]);
    for (std::int64_t j = 0; j < vocab; ++j) {
      result.gradient[static_cast<std::size_t>(row * columns + j)] =
          (loss_with(j, z[j] + step) - loss_with(j, z[j] - step)) / (2 * step);
    }
  }
  return result;
}

template <class T>
struct Result {
  double total = 0;
  Owned<float> losses;
  Owned<T> gradient;
};

/// Does the work of `parts` ranks, each with its slice of the columns; the reductions by hand.
template <class T>
Result<T> sharded(Ops& ops, const Owned<T>& logits, std::int64_t vocab, int parts, const Owned<std::int32_t>& targets,
                  const Owned<float>& weights, float scale) {
  const std::int64_t n = logits.shape()[0], columns = logits.shape()[1], width = columns / parts;
  std::vector<Owned<T>> local;
  std::vector<Owned<float>> local_maximum, sums, target_logits;
  for (int part = 0; part < parts; ++part) {
    Owned<T> slice({n, width});
    for (std::int64_t i = 0; i < n * width; ++i) slice[i] = logits[i / width * columns + part * width + i % width];
    Owned<float> maximum({n}, 77.0f), sum({n}, 77.0f), target({n}, 77.0f);
    ops.cross_entropy_local({.logits = slice,
                             .targets = targets,
                             .first_column = part * width,
                             .vocab_size = vocab,
                             .maximum = maximum,
                             .sum_exp = sum,
                             .target_logit = target});
    local.push_back(slice), local_maximum.push_back(maximum), sums.push_back(sum), target_logits.push_back(target);
  }
  Owned<float> maximum({n}, -kInfiniteLogit), sum({n}), target({n});
  for (const Owned<float>& part : local_maximum) {
    for (std::int64_t i = 0; i < n; ++i) maximum[i] = std::max(maximum[i], part[i]);
  }
  for (std::size_t part = 0; part < local.size(); ++part) {
    ops.cross_entropy_rescale({.local_maximum = local_maximum[part], .maximum = maximum, .sum_exp = sums[part]});
    for (std::int64_t i = 0; i < n; ++i) sum[i] += sums[part][i];
    for (std::int64_t i = 0; i < n; ++i) target[i] += target_logits[part][i];
  }
  Result<T> result{0, Owned<float>({n}), Owned<T>({n, columns})};
  Owned<double> total({1}, 5.0);
  ops.cross_entropy_loss({.maximum = maximum,
                          .sum_exp = sum,
                          .target_logit = target,
                          .weights = weights,
                          .losses = result.losses,
                          .total = total});
  result.total = total[0] - 5.0;
  for (std::size_t part = 0; part < local.size(); ++part) {
    const std::int64_t first = static_cast<std::int64_t>(part) * width;
    ops.cross_entropy_backward({.logits = local[part],
                                .targets = targets,
                                .first_column = first,
                                .vocab_size = vocab,
                                .maximum = maximum,
                                .sum_exp = sum,
                                .weights = weights,
                                .scale = scale});
    for (std::int64_t i = 0; i < n * width; ++i)
      result.gradient[i / width * columns + first + i % width] = local[part][i];
  }
  return result;
}

}  // namespace

TEST_CASE("all-zero logits cost the logarithm of the vocabulary") {
  const Backend backend = make_test_backend();
  const Owned<float> logits({3, 50304}), weights({3}, 1.0f);
  const Owned<std::int32_t> targets({3}, {0, 50303, 17});
  for (const int parts : {1, 2, 4}) {
    const Result<float> result = sharded(*backend.ops, logits, 50304, parts, targets, weights, 1);
    for (const float loss : result.losses.values()) CHECK(static_cast<double>(loss) == Approx(10.8258).epsilon(1e-5));
    CHECK(result.total == Approx(3 * std::log(50304.0)).epsilon(1e-7));
  }
}

TEST_CASE("logits of minus infinity count nothing, wherever in a row they are") {
  const Backend backend = make_test_backend();
  constexpr std::int64_t columns = 4096;
  for (const std::int64_t seen : {std::int64_t{0}, std::int64_t{2000}, columns - 1}) {
    Owned<float> logits({1, columns}, -std::numeric_limits<float>::infinity());
    const Owned<float> weights({1}, 1.0f);
    logits[seen] = 3;
    const Owned<std::int32_t> targets({1}, static_cast<std::int32_t>(seen));
    const Result<float> result = sharded(*backend.ops, logits, columns, 1, targets, weights, 1);
    CHECK(result.total == Approx(0).margin(1e-6));
    for (std::int64_t i = 0; i < columns; ++i) REQUIRE(result.gradient[i] == 0);
  }
}

TEMPLATE_TEST_CASE("cross entropy: whole and split agree with fp64 and finite differences", "", float, BFloat16,
                   Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  struct Case {
    std::int64_t n, columns, vocab;
  };
  // The last two have a rank whose columns are partly, and ranks whose columns are all padding.
  for (const Case c : {Case{1, 8, 8}, Case{7, 36, 33}, Case{33, 8, 7}, Case{3, 1000, 1000}, Case{2, 3200, 3111},
                       Case{5, 40, 25}, Case{5, 40, 9}}) {
    const Owned<float> weights = random_tensor({c.n}, 3, 0.5, 0.6);
    const Owned<std::int32_t> targets = random_ids(c.n, c.vocab, 2);
    Owned<T> logits = random_tensor<T>({c.n, c.columns}, 1, 8, 50);  // an offset that exp alone would not survive
    for (std::int64_t i = 0; i < logits.elements(); ++i) {
      if (i % c.columns >= c.vocab) logits[i] = narrow<T>(1e6f);  // padding holds anything and must not be looked at
    }
    ReferenceLoss want = reference_loss(as_doubles(logits), c.columns, c.vocab, targets, weights);
    for (double& g : want.gradient) g *= 0.25;
    for (const int parts : {1, 2, 4}) {
      CAPTURE(c.n, c.columns, c.vocab, parts);
      const Result<T> result = sharded(*backend.ops, logits, c.vocab, parts, targets, weights, 0.25f);
      CHECK(result.total == Approx(want.total).epsilon(1e-6));
      // A step of 1e-5 on a loss of some hundred leaves 1e-9 of the difference quotient.
      CHECK(difference(result.gradient, want.gradient, 2e-6) == "");
      double weighted = 0;
      for (std::int64_t i = 0; i < c.n; ++i)
        weighted += static_cast<double>(weights[i]) * static_cast<double>(result.losses[i]);
      CHECK(weighted == Approx(result.total).epsilon(1e-6));
      for (std::int64_t i = 0; i < logits.elements(); ++i) {
        if (i % c.columns >= c.vocab) REQUIRE(result.gradient.value(i) == 0);
      }
    }
  }
}

TEST_CASE("a rank with nothing but padding says so") {
  const Backend backend = make_test_backend();
  Owned<float> logits({2, 4}, 3.0f), maximum({2}), sum({2}, 1.0f), target({2}, 1.0f);
  const Owned<std::int32_t> targets({2}, {0, 99});
  backend.ops->cross_entropy_local({.logits = logits,
                                    .targets = targets,
                                    .first_column = 100,
                                    .vocab_size = 100,
                                    .maximum = maximum,
                                    .sum_exp = sum,
                                    .target_logit = target});
  for (const std::int64_t i : {0, 1}) {
    CHECK(maximum[i] == -kInfiniteLogit);
    CHECK(sum[i] == 0);
    CHECK(target[i] == 0);
  }
}

TEST_CASE("weights and losses are optional, and the total is added to") {
  const Backend backend = make_test_backend();
  const Owned<float> maximum({2}, 1.0f), sum({2}, 2.0f), target({2}, 0.5f);
  Owned<double> total({1}, 10.0);
  const CrossEntropyLossArgs args{
      .maximum = maximum, .sum_exp = sum, .target_logit = target, .weights = {}, .losses = {}, .total = total};
  backend.ops->cross_entropy_loss(args);
  backend.ops->cross_entropy_loss(args);
  CHECK(total[0] == Approx(10 + 4 * (0.5 + std::log(2.0))).epsilon(1e-12));
}

TEMPLATE_TEST_CASE("a logit that is not a number makes the loss not a number", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  Owned<T> logits = random_tensor<T>({1, 100}, 1);
  logits[57] = narrow<T>(std::numeric_limits<float>::quiet_NaN());
  const Owned<float> weights({1}, 1.0f);
  CHECK(std::isnan(sharded(*backend.ops, logits, 100, 2, Owned<std::int32_t>({1}, 3), weights, 1).total));
}
