// Blends: the choice between sets against numpy (scripts/oracles/blend_oracle.py), and what it promises.
#include "data/samples/blend.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/data_support.h"
#include "support/token_batches.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const json& golden_blend() {
  static const json file = [] {
    std::ifstream stream(MEGATRON_GOLDEN_FOLDER "/blend.json");
    return json::parse(stream);
  }();
  return file;
}

/// A number in [0, 1), the same every time.
double draw(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(state >> 11) / static_cast<double>(std::uint64_t{1} << 53);
}

std::vector<double> draw_weights(std::uint64_t& state) {
  std::vector<double> weights(2 + static_cast<std::size_t>(6 * draw(state)));
  for (double& weight : weights) weight = std::pow(10.0, 3 * draw(state));
  return normalised_weights(std::move(weights));
}

/// Tokens [base, base + tokens): ids tell the sets apart.
class Numbered final : public TokenSource {
 public:
  Numbered(std::int32_t base, std::uint64_t tokens) : base_(base), tokens_(tokens) {}
  std::uint64_t tokens() const override { return tokens_; }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override {
    REQUIRE((count > 0 && first + count <= tokens_));
    std::iota(ids, ids + count, base_ + static_cast<std::int32_t>(first));
  }

 private:
  std::int32_t base_;
  std::uint64_t tokens_;
};

/// Three sets of 100, 41 and 1000 tokens with the ids from 0, 10000 and 20000 on, as 20, 8 and 200 samples.
struct Mixture {
  Numbered a{0, 101}, b{10000, 41}, c{20000, 1001};
  TokenChain chain{{&a, &b, &c}};
  std::unique_ptr<BlendedOrder> order;

  explicit Mixture(std::vector<double> weights = {5, 2, 3}) {
    weights = normalised_weights(std::move(weights));
    std::vector<BlendedOrder::Part> parts;
    TokenSource* const sources[] = {&a, &b, &c};
    for (std::size_t i = 0; i < 3; ++i) {
      parts.push_back({std::make_unique<EpochOrder>(0, sources[i]->tokens(), 5, 3 + i, EpochOrder::Kind::shuffled),
                       chain.start_of(i), weights[i], std::string(1, static_cast<char>('a' + i))});
    }
    order = std::make_unique<BlendedOrder>(std::move(parts), 228);
  }
};

}  // namespace

TEST_CASE("blend: every choice is Megatron's, by numpy") {
  bool one_that_fusing_would_change = false;
  for (const json& c : golden_blend()) {
    INFO(c.at("weights").dump());
    const std::vector<double> weights = normalised_weights(c.at("weights").get<std::vector<double>>());
    const auto samples = c.at("samples").get<std::uint64_t>();
    const auto first = c.at("first").get<std::vector<std::size_t>>();
    one_that_fusing_would_change |= c.contains("fused_differs_at");
    std::vector<std::uint64_t> asked_for;
    for (std::size_t set = 0; set < weights.size(); ++set) {
      CHECK(weights[set] == std::strtod(c.at("normalised")[set].get<std::string>().c_str(), nullptr));
      asked_for.push_back(blend_samples(weights[set], samples));
    }
    CHECK(asked_for == c.at("asked_for").get<std::vector<std::uint64_t>>());
    const BlendIndex index(weights);
    std::vector<std::uint64_t> given(weights.size());
    std::uint64_t sum = 0;
    bool own_order = true, as_golden = true;
    for (std::uint64_t i = 0; i < samples; ++i) {
      const auto [set, sample] = index.at(i);
      if (i < first.size()) as_golden &= set == first[i];
      own_order &= sample == given[set]++;
      sum = 31 * sum + set;
    }
    CHECK(as_golden);
    CHECK(own_order);
    CHECK(sum == c.at("sum").get<std::uint64_t>());
    CHECK(given == c.at("given").get<std::vector<std::uint64_t>>());
  }
  CHECK(one_that_fusing_would_change);
}

TEST_CASE("blend: each set has its share after any number of samples") {
  std::uint64_t state = 1;
  for (int trial = 0; trial < 40; ++trial) {
    const std::vector<double> weights = draw_weights(state);
    const BlendIndex index(weights);
    std::vector<std::uint64_t> given(weights.size());
    double most_off = 0;
    bool enough = true;
    for (std::uint64_t n = 1; n <= 3000; ++n) {
      ++given[index.at(n - 1).set];
      for (std::size_t set = 0; set < weights.size(); ++set) {
        most_off = std::max(most_off, static_cast<double>(given[set]) - weights[set] * static_cast<double>(n));
        enough &= given[set] <= blend_samples(weights[set], n);
      }
    }
    CHECK(most_off <= 1);  // never more than one ahead
    CHECK(enough);
  }
}

TEST_CASE("blend: any order of asking gives the same, across marks and back") {
  const std::vector<double> weights = normalised_weights({3, 1, 0.5});
  const BlendIndex rising(weights), jumping(weights);
  constexpr std::uint64_t kEnd = 300'000;
  std::vector<BlendIndex::SetSample> all;
  for (std::uint64_t i = 0; i < kEnd; ++i) all.push_back(rising.at(i));
  std::uint64_t state = 9;
  for (int trial = 0; trial < 60; ++trial) {
    const auto i = static_cast<std::uint64_t>(draw(state) * kEnd);
    CHECK(jumping.at(i) == all[i]);
  }
  for (const std::uint64_t i : {kEnd - 1, std::uint64_t{0}, std::uint64_t{65535}, std::uint64_t{65536},
                                std::uint64_t{131072}, std::uint64_t{131071}, std::uint64_t{65536}}) {
    CHECK(jumping.at(i) == all[i]);
  }
}

TEST_CASE("blend: samples are those of the sets' own orders, out of the right set") {
  Mixture mixture;
  SampleReader reader(mixture.chain, *mixture.order);
  CHECK(mixture.order->samples() == 228);
  CHECK(mixture.order->description().find("50 % a (epoch: 20 samples per pass), 20 % b") != std::string::npos);
  std::vector<std::uint64_t> given(3);
  std::vector<int> seen_of_c(200);
  for (std::uint64_t i = 0; i < 600; ++i) {
    const std::span<const std::int32_t> tokens = reader.read(i);
    const auto set = static_cast<std::size_t>(tokens[0] / 10000);
    for (std::size_t t = 1; t < 6; ++t) CHECK(tokens[t] == tokens[0] + static_cast<std::int32_t>(t));
    CHECK(tokens[0] % 10000 % 5 == 0);
    ++given[set];
    if (set == 2) ++seen_of_c[static_cast<std::size_t>(tokens[0] - 20000) / 5];
  }
  CHECK(given == std::vector<std::uint64_t>{300, 120, 180});
  // 180 of its 200 samples, none twice: a separate pass.
  CHECK(std::count(seen_of_c.begin(), seen_of_c.end(), 1) == 180);
  CHECK(std::count(seen_of_c.begin(), seen_of_c.end(), 0) == 20);
}

TEST_CASE("blend: every layout of data ranks and every start gives equal samples") {
  constexpr std::int64_t kBatch = 12, kSteps = 9;
  const BatchPlan plan = [](std::int64_t step) {
    return step < kSteps ? GlobalBatch{static_cast<std::uint64_t>(step * kBatch), kBatch, 0} : GlobalBatch{};
  };
  // By step and place in the batch: the sample's first token.
  const auto first_tokens = [&](int ranks, std::int64_t micro, std::int64_t first_step) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kSteps * kBatch), -1);
    for (int rank = 0; rank < ranks; ++rank) {
      Mixture mixture;  // one per rank
      TokenBatches batches(mixture.chain, *mixture.order, {micro, kBatch, rank, ranks}, plan, first_step);
      for (std::int64_t step = first_step; step < kSteps; ++step) {
        for (const MicroBatch& part : batches.next().micro_batches) {
          const auto* ids = static_cast<const std::int32_t*>(part.main.tokens.data());
          for (std::int64_t j = 0; j < micro; ++j) {
            tokens[static_cast<std::size_t>(step * kBatch + part.first_sample + j)] = ids[j];
          }
        }
      }
    }
    return tokens;
  };
  const std::vector<std::int32_t> reference = first_tokens(1, 1, 0);
  CHECK(std::count(reference.begin(), reference.end(), -1) == 0);
  CHECK(first_tokens(2, 3, 0) == reference);
  CHECK(first_tokens(6, 1, 0) == reference);
  const std::vector<std::int32_t> resumed = first_tokens(3, 2, 5);
  CHECK(std::equal(resumed.begin() + 5 * kBatch, resumed.end(), reference.begin() + 5 * kBatch));
}

TEST_CASE("chain of tokens: reads run from one set into the next") {
  Numbered a(0, 3), b(100, 2), c(200, 4);
  TokenChain chain({&a, &b, &c});
  CHECK(chain.tokens() == 9);
  std::vector<std::int32_t> ids(7);
  chain.read(1, 7, ids.data());
  CHECK(ids == std::vector<std::int32_t>{1, 2, 100, 101, 200, 201, 202});
  chain.read(8, 1, ids.data());
  CHECK(ids[0] == 203);
}
