// The router of a mixture of experts: choice, gates, both losses and their gradient, against doubles.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Doubles = std::vector<double>;

struct RouteSizes {
  std::int64_t s, b, experts, top_k;
  std::int64_t rows() const { return s * b; }
};

constexpr RouteSizes kRouteSizes[] = {{3, 2, 1, 1}, {5, 1, 2, 1}, {4, 3, 2, 2},  {9, 2, 7, 3},
                                      {6, 3, 8, 2}, {3, 2, 8, 8}, {2, 2, 40, 5}, {70, 2, 65, 33}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Results of route_forward, in doubles, and both losses.
struct ReferenceRoutes {
  RouteSizes size;
  bool renormalize = false;
  Doubles probabilities, log_sums;

  ReferenceRoutes(RouteSizes s, const Doubles& logits, bool renormalized) : size(s), renormalize(renormalized) {
    for (std::int64_t row = 0; row < size.rows(); ++row) {
      const auto first = logits.begin() + row * size.experts, last = first + size.experts;
      const double maximum = *std::max_element(first, last);
      double sum = 0;
      for (auto logit = first; logit != last; ++logit) sum += std::exp(*logit - maximum);
      for (auto logit = first; logit != last; ++logit) probabilities.push_back(std::exp(*logit - maximum) / sum);
      log_sums.push_back(maximum + std::log(sum));
    }
  }
  double probability(std::int64_t row, std::int64_t expert) const {
    return probabilities[at(row * size.experts + expert)];
  }
  double score(std::int64_t row, std::int64_t expert, const Doubles& bias) const {
    return probability(row, expert) + (bias.empty() ? 0.0 : bias[at(expert)]);
  }
  /// All experts, the preferred first.
  std::vector<std::int32_t> ranking(std::int64_t row, const Doubles& bias) const {
    std::vector<std::int32_t> experts(at(size.experts));
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(),
                     [&](std::int32_t a, std::int32_t b) { return score(row, a, bias) > score(row, b, bias); });
    return experts;
  }
  Doubles gates(const Owned<std::int32_t>& chosen) const {
    Doubles result;
    for (std::int64_t row = 0; row < size.rows(); ++row) {
      double sum = 0;
      for (std::int64_t j = 0; j < size.top_k; ++j) sum += probability(row, chosen[row * size.top_k + j]);
      for (std::int64_t j = 0; j < size.top_k; ++j) {
        result.push_back(probability(row, chosen[row * size.top_k + j]) / (renormalize ? sum : 1));
      }
    }
    return result;
  }
  double balance(const Owned<std::int32_t>& counts, std::int64_t sequence) const {
    double sum = 0;
    for (std::int64_t sample = 0; sample < size.b; ++sample) {
      for (std::int64_t expert = 0; expert < size.experts; ++expert) {
        double total = 0;
        for (std::int64_t i = 0; i < size.s; ++i) total += probability(i * size.b + sample, expert);
        const double share = counts.value(sample * size.experts + expert) / static_cast<double>(sequence * size.top_k);
        sum += static_cast<double>(size.experts) * share * total / static_cast<double>(sequence);
      }
    }
    return sum;
  }
  double z(std::int64_t sequence) const {
    double sum = 0;
    for (const double log_sum : log_sums) sum += log_sum * log_sum;
    return sum / static_cast<double>(sequence);
  }
};

/// Results of route_forward.
struct Routed {
  explicit Routed(RouteSizes size)
      : probabilities({size.s, size.b, size.experts}, 9.0f),
        gates({size.rows(), size.top_k}, 9.0f),
        log_sums({size.rows()}, 9.0f),
        gaps({size.rows()}, 9.0f),
        chosen({size.s, size.b, size.top_k}, 9) {}
  void run(Ops& ops, const Owned<float>& logits, const ConstTensor& bias, bool renormalize) {
    ops.route_forward({.logits = logits,
                       .choice_bias = bias,
                       .probabilities = probabilities,
                       .chosen = chosen,
                       .gates = gates,
                       .log_sums = log_sums,
                       .gaps = gaps,
                       .renormalize = renormalize});
  }

  Owned<float> probabilities, gates, log_sums, gaps;
  Owned<std::int32_t> chosen;
};

}  // namespace

TEST_CASE("route_forward: softmax, choice, gates and gaps, biased or not", "[experts]") {
  const Backend backend = make_test_backend();
  for (const RouteSizes& size : kRouteSizes) {
    for (const bool biased : {false, true}) {
      for (const bool renormalize : {false, true}) {
        CAPTURE(size.s, size.experts, size.top_k, biased, renormalize);
        const Owned<float> logits = random_tensor({size.rows(), size.experts}, 1, 4, 2);
        const Owned<float> bias = random_tensor({size.experts}, 2, 0.3);
        const ReferenceRoutes want(size, as_doubles(logits), renormalize);
        Routed got(size);
        got.run(*backend.ops, logits, biased ? bias.tensor() : ConstTensor(), renormalize);
        CHECK(difference(got.probabilities, want.probabilities, 1e-6) == "");
        CHECK(difference(got.log_sums, want.log_sums, 1e-6) == "");
        Owned<std::int32_t> chosen = got.chosen;
        for (std::int64_t row = 0; row < size.rows(); ++row) {
          const Doubles of_choice = biased ? as_doubles(bias) : Doubles();
          const std::vector<std::int32_t> ranking = want.ranking(row, of_choice);
          for (std::int64_t j = 0; j < size.top_k; ++j) {
            const std::int64_t i = row * size.top_k + j;
            chosen[i] = ranking[at(j)];
            // Where rounding decides, either is right.
            if (std::abs(want.score(row, got.chosen[i], of_choice) - want.score(row, chosen[i], of_choice)) < 1e-6) {
              chosen[i] = got.chosen[i];
            }
          }
          if (size.top_k == size.experts) {
            CHECK(got.gaps[row] == std::numeric_limits<float>::infinity());
          } else {
            const double gap = want.score(row, ranking[at(size.top_k - 1)], of_choice) -
                               want.score(row, ranking[at(size.top_k)], of_choice);
            CHECK(std::abs(got.gaps.value(row) - gap) <= 1e-6);
          }
        }
        CHECK(got.chosen == chosen);
        CHECK(difference(got.gates, want.gates(chosen), 1e-6) == "");

        Routed without_gaps(size);
        backend.ops->route_forward({.logits = logits,
                                    .choice_bias = {},
                                    .probabilities = without_gaps.probabilities,
                                    .chosen = without_gaps.chosen,
                                    .gates = without_gaps.gates,
                                    .log_sums = without_gaps.log_sums,
                                    .gaps = {},
                                    .renormalize = renormalize});
        CHECK(without_gaps.probabilities == got.probabilities);
        if (!biased) CHECK(without_gaps.chosen == got.chosen);
      }
    }
  }
}

TEST_CASE("route_forward: of equal experts the lowest are chosen, in their order", "[experts]") {
  const Backend backend = make_test_backend();
  for (const RouteSizes& size : kRouteSizes) {
    CAPTURE(size.experts, size.top_k);
    Owned<float> logits({size.rows(), size.experts}, 1.5f);
    Routed got(size);
    got.run(*backend.ops, logits, {}, true);
    for (std::int64_t i = 0; i < got.chosen.elements(); ++i) REQUIRE(got.chosen[i] == i % size.top_k);
    CHECK(difference(got.gates, Doubles(at(got.gates.elements()), 1 / static_cast<double>(size.top_k)), 1e-6) == "");
    // The last one is better: it comes first, then the lowest again.
    for (std::int64_t row = 0; row < size.rows(); ++row) logits[(row + 1) * size.experts - 1] = 3;
    got.run(*backend.ops, logits, {}, true);
    for (std::int64_t i = 0; i < got.chosen.elements(); ++i) {
      const std::int64_t j = i % size.top_k;
      REQUIRE(got.chosen[i] == (j == 0 ? size.experts - 1 : j - 1));
    }
  }
}

TEST_CASE("route_forward: NaN and infinities choose distinct experts in range", "[experts]") {
  const Backend backend = make_test_backend();
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const RouteSizes& size : kRouteSizes) {
    CAPTURE(size.experts, size.top_k);
    Owned<float> logits = random_tensor({size.rows(), size.experts}, 3);
    for (std::int64_t i = 0; i < size.experts; ++i) logits[i] = nan;
    logits[size.experts * 2 - 1] = nan;
    logits[size.experts * 2] = infinity;
    for (std::int64_t i = 0; i < size.experts; ++i) logits[size.experts * 3 + i] = -infinity;
    Owned<float> bias = random_tensor({size.experts}, 4);
    bias[0] = nan;
    for (const bool biased : {false, true}) {
      Routed got(size);
      got.run(*backend.ops, logits, biased ? bias.tensor() : Tensor(), true);
      for (std::int64_t row = 0; row < size.rows(); ++row) {
        std::vector<bool> seen(at(size.experts));
        for (std::int64_t j = 0; j < size.top_k; ++j) {
          const std::int32_t expert = got.chosen[row * size.top_k + j];
          REQUIRE(expert >= 0);
          REQUIRE(expert < size.experts);
          REQUIRE_FALSE(seen[at(expert)]);
          seen[at(expert)] = true;
        }
      }
      CHECK(std::isnan(got.log_sums[0]));
      CHECK(std::isnan(got.gates[0]));
      CHECK(got.chosen[0] == 0);  // all are equal
    }
  }
}

TEST_CASE("route_forward: a chosen expert of probability 0 has a gate of 0", "[experts]") {
  const Backend backend = make_test_backend();
  const RouteSizes size{1, 1, 2, 1};
  Owned<float> logits({1, 2}, std::vector<float>{0, -200}), bias({2}, std::vector<float>{0, 2});
  Routed got(size);
  got.run(*backend.ops, logits, bias, true);
  CHECK(got.chosen[0] == 1);
  CHECK(got.gates[0] == 0);
  CHECK(got.gaps[0] == 1);
}

TEST_CASE("route_losses: sums over samples, whole or by parts of the sequence", "[experts]") {
  const Backend backend = make_test_backend();
  for (const RouteSizes& size : kRouteSizes) {
    CAPTURE(size.s, size.b, size.experts, size.top_k);
    const Owned<float> logits = random_tensor({size.rows(), size.experts}, 1, 4, 2);
    const Owned<std::int32_t> counts = random_ids(size.b * size.experts, 50, 5);
    const ReferenceRoutes want(size, as_doubles(logits), false);
    Routed routed(size);
    routed.run(*backend.ops, logits, {}, false);
    Owned<double> balance({1}, 0.5), z({1}, 0.25), parts({1}), z_parts({1});
    backend.ops->route_losses({.probabilities = routed.probabilities,
                               .counts = counts,
                               .log_sums = routed.log_sums,
                               .top_k = size.top_k,
                               .balance = balance,
                               .z = z});
    CHECK(balance[0] == Approx(0.5 + want.balance(counts, size.s)).epsilon(1e-6));
    CHECK(z[0] == Approx(0.25 + want.z(size.s)).epsilon(1e-6));
    const std::int64_t half = size.s / 2;
    for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, half}, {half, size.s - half}}) {
      const ConstTensor probabilities = routed.probabilities.tensor().slice(0, first, rows);
      const ConstTensor log_sums = routed.log_sums.tensor().slice(0, first * size.b, rows * size.b);
      backend.ops->route_losses({.probabilities = probabilities,
                                 .counts = counts,
                                 .log_sums = {},
                                 .top_k = size.top_k,
                                 .sequence = size.s,
                                 .balance = parts,
                                 .z = {}});
      backend.ops->route_losses({.probabilities = probabilities,
                                 .counts = {},
                                 .log_sums = log_sums,
                                 .top_k = size.top_k,
                                 .sequence = size.s,
                                 .balance = {},
                                 .z = z_parts});
    }
    CHECK(parts[0] == Approx(balance[0] - 0.5).epsilon(1e-12));
    CHECK(z_parts[0] == Approx(z[0] - 0.25).epsilon(1e-12));
  }
}

TEST_CASE("route_losses: a balance of 1 to the number of experts per sample", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 6, b = 2, experts = 3;
  Owned<float> probabilities({s, b, experts}, 1.0f / 3), log_sums({s * b}, 2.0f);
  Owned<std::int32_t> counts({b, experts}, 2);
  Owned<double> balance({1}), z({1});
  backend.ops->route_losses({probabilities, counts, log_sums, 1, 0, balance, z});
  CHECK(balance[0] == Approx(2).epsilon(1e-6));
  CHECK(z[0] == Approx(8).epsilon(1e-12));
  for (std::int64_t i = 0; i < probabilities.elements(); ++i) probabilities[i] = i % experts == 1 ? 1.0f : 0.0f;
  for (std::int64_t i = 0; i < counts.elements(); ++i) counts[i] = i % experts == 1 ? 6 : 0;
  balance[0] = 0;
  backend.ops->route_losses({probabilities, counts, {}, 1, 0, balance, {}});
  CHECK(balance[0] == Approx(6).epsilon(1e-12));
}

TEST_CASE("route_backward: finite differences of gates, balance and z", "[experts]") {
  const Backend backend = make_test_backend();
  struct Scales {
    float balance, z;
  };
  for (const RouteSizes& size : kRouteSizes) {
    if (size.experts > 40) continue;
    for (const bool renormalize : {false, true}) {
      for (const Scales& scales : {Scales{0, 0}, Scales{0.7f, 0}, Scales{0, -0.3f}, Scales{1.5f, 0.2f}}) {
        for (const std::int64_t sequence : {size.s, 3 * size.s}) {
          CAPTURE(size.s, size.experts, size.top_k, renormalize, scales.balance, scales.z, sequence);
          const Owned<float> logits = random_tensor({size.rows(), size.experts}, 1, 2, 1);
          const Owned<float> dgates = random_tensor({size.rows(), size.top_k}, 2);
          const Owned<std::int32_t> counts = random_ids(size.b * size.experts, 50, 5);
          Routed routed(size);
          routed.run(*backend.ops, logits, {}, renormalize);
          const auto loss = [&](const Doubles& x) {
            const ReferenceRoutes reference(size, x, renormalize);
            const Doubles gates = reference.gates(routed.chosen);
            double sum = static_cast<double>(scales.balance) * reference.balance(counts, sequence) +
                         static_cast<double>(scales.z) * reference.z(sequence);
            for (std::int64_t i = 0; i < dgates.elements(); ++i) sum += dgates.value(i) * gates[at(i)];
            return sum;
          };
          Owned<float> dlogits({size.rows(), size.experts}, 9.0f);
          backend.ops->route_backward({.probabilities = routed.probabilities,
                                       .chosen = routed.chosen,
                                       .counts = scales.balance != 0 ? counts.tensor() : ConstTensor(),
                                       .log_sums = scales.z != 0 ? routed.log_sums.tensor() : Tensor(),
                                       .dgates = dgates,
                                       .sequence = sequence,
                                       .dlogits = dlogits,
                                       .renormalize = renormalize,
                                       .balance_scale = scales.balance,
                                       .z_scale = scales.z});
          CHECK(difference(dlogits, numerical_gradient(loss, as_doubles(logits)), 2e-6, 1e-2) == "");
        }
      }
    }
  }
}

TEST_CASE("route_backward: choices that are no expert's have no gradient", "[experts]") {
  const Backend backend = make_test_backend();
  const RouteSizes size{2, 1, 4, 2};
  const Owned<float> logits = random_tensor({2, 4}, 1), dgates = random_tensor({2, 2}, 2);
  Routed routed(size);
  routed.run(*backend.ops, logits, {}, true);
  for (std::int64_t i = 0; i < 4; ++i) routed.chosen[i] = i % 2 == 0 ? -1 : 4;
  Owned<float> dlogits({2, 4}, 9.0f);
  backend.ops->route_backward({.probabilities = routed.probabilities,
                               .chosen = routed.chosen,
                               .counts = {},
                               .log_sums = {},
                               .dgates = dgates,
                               .dlogits = dlogits,
                               .renormalize = true});
  CHECK(dlogits == Owned<float>({2, 4}));
}

TEST_CASE("router: without rows nothing is added", "[experts]") {
  const Backend backend = make_test_backend();
  Owned<float> nothing({0, 4}), gates({0, 2}), log_sums(Shape{0}), probabilities({0, 2, 4});
  Owned<std::int32_t> chosen({0, 2}), counts({2, 4});
  Owned<double> balance({1}, 0.5), z({1}, 0.25);
  backend.ops->route_forward({nothing, {}, nothing, chosen, gates, log_sums, {}});
  backend.ops->route_losses({probabilities, counts, log_sums, 2, 0, balance, z});
  backend.ops->route_backward({probabilities, chosen, counts, log_sums, gates, 0, nothing, true, 1, 1});
  CHECK(balance[0] == 0.5);
  CHECK(z[0] == 0.25);
}
