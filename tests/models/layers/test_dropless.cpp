// Experts without drops: the numbers of experts that have room for all tokens, however many rounds these take.
#include <algorithm>

#include "distributed/comm/thread_communicator.h"
#include "models/layers/layer_cases.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Tells how many rounds each expert took.
struct WatchedMoe final : TestedMoe {
  WatchedMoe(ParameterBuilder& builder, const MoeSizes& sizes, std::vector<std::int64_t>* rounds_)
      : TestedMoe(builder, sizes, "moe"), rounds(rounds_) {}
  void backward(Context& context, Tensor dy, Tensor dx) override {
    TestedMoe::backward(context, dy, dx);
    if (context.region.rank() != 0) return;
    rounds->clear();
    for (std::int64_t i = 0; i < 4; ++i) rounds->push_back(saved.rounds.of(i));
  }
  std::vector<std::int64_t>* rounds;
};

LayerCase watched(const MoeSizes& sizes, std::vector<std::int64_t>& rounds) {
  CaseList cases;
  cases.add<WatchedMoe>("experts", kHidden, kHidden, sizes, &rounds);
  return cases.take().front();
}

void require_close(const LayerResults& got, const LayerResults& want) {
  CHECK(got.copies_agree);
  CHECK(distance(got.y, want.y) < 1e-6);
  CHECK(distance(got.dx, want.dx) < 2e-6);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (const auto& [name, gradient] : want.gradients) {
    INFO(name);
    CHECK(distance(got.gradients.at(name), gradient) < 2e-6);
  }
}

constexpr std::int64_t kTokens = kSequence * kSamples;

}  // namespace

TEST_CASE("experts without drops: results equal room for all tokens at any buffer") {
  const std::int64_t top_k = GENERATE(1, 2, 3);
  MoeSizes sizes = moe_sizes(4, top_k);
  sizes.router.renormalize = top_k > 1;
  sizes.router.balance_term = sizes.router.z_term = 0;
  sizes.capacity_factor = 4.0 / static_cast<double>(top_k);
  std::vector<std::int64_t> rounds;
  const LayerResults want = run_on_ranks(watched(sizes, rounds), 1, false);
  CHECK(rounds == std::vector<std::int64_t>(4, 0));
  struct Ranks {
    int tensor;
    bool sequence_parallel;
  };
  for (const double buffer : {1.0, 1.25, 100.0}) {
    sizes.buffer = buffer;
    for (const Ranks& ranks : {Ranks{1, false}, Ranks{2, false}, Ranks{2, true}, Ranks{4, true}}) {
      CAPTURE(top_k, buffer, ranks.tensor, ranks.sequence_parallel);
      require_close(run_on_ranks(watched(sizes, rounds), ranks.tensor, ranks.sequence_parallel), want);
      const std::int64_t most = *std::max_element(rounds.begin(), rounds.end());
      if (buffer == 100) CHECK(most == 1);
      if (buffer == 1) CHECK(most > 1);
    }
  }
}

TEST_CASE("experts without drops: all tokens may choose the same experts") {
  const std::int64_t top_k = GENERATE(1, 2);
  MoeSizes sizes = moe_sizes(4, top_k);
  sizes.router.renormalize = false;
  const auto results = [&](std::vector<std::int64_t>& rounds) {
    const LayerCase layer = watched(sizes, rounds);
    LayerResults all;
    run_as_threads(1, [&](Communicator& world) {
      LayerOnRank rank(layer, world, false);
      NamedValues parameters = random_parameters(layer);
      std::fill(parameters.at("moe.router.weight").begin(), parameters.at("moe.router.weight").end(), 0.0f);
      set_values(rank.store(), parameters);  // among equal scores the lower experts come first
      all.y = rank.forward(random_input(layer));
      all.dx = rank.backward(random_output_gradient(layer));
      for (const Parameter& parameter : rank.store().all()) {
        const float* gradient = parameter.gradient.as<float>();
        all.gradients[parameter.name].assign(gradient, gradient + parameter.elements());
      }
    });
    return all;
  };
  sizes.capacity_factor = 4.0 / static_cast<double>(top_k);
  std::vector<std::int64_t> rounds;
  const LayerResults want = results(rounds);
  for (const double buffer : {1.0, 1.5}) {
    CAPTURE(top_k, buffer);
    sizes.buffer = buffer;
    const LayerResults got = results(rounds);
    require_close(got, want);
    const auto places = static_cast<std::int64_t>(std::ceil(buffer * static_cast<double>(kTokens * top_k) / 4));
    const std::int64_t most = (kTokens + places - 1) / places;
    std::vector<std::int64_t> expected(4, 0);  // experts without tokens take none
    std::fill_n(expected.begin(), top_k, most);
    CHECK(rounds == expected);
    CHECK(norm_of(got.gradients.at("moe.experts.3.up.weight")) == 0);
    CHECK(norm_of(got.gradients.at("moe.experts.0.up.weight")) > 0);
  }
}

TEST_CASE("experts without drops: neighbours share the larger count of rounds") {
  ExpertRounds few(64), many(128);
  for (std::int64_t i = 0; i < 128; ++i) {
    if (i < 64) few.raise(i, i % 5 + 1);
    many.raise(i, i % 5 + 1);
  }
  for (std::int64_t i = 0; i < 64; ++i) CHECK(few.of(i) == i % 5 + 1);
  for (std::int64_t i = 0; i < 128; i += 2) {
    CHECK(many.of(i) == std::max(i % 5, (i + 1) % 5) + 1);
    CHECK(many.of(i + 1) == many.of(i));
  }
  CHECK(few.most() == 5);
  CHECK(many.most() == 5);
}

TEST_CASE("experts without drops: a round computes the eighths that are filled") {
  ExpertRounds rounds(3, 80);
  rounds.raise(0, 121);
  rounds.raise(1, 80);
  rounds.raise(2, 1);
  CHECK(rounds.of(0) == 2);
  CHECK(rounds.filled(0, 0) == 80);
  CHECK(rounds.filled(0, 1) == 50);
  CHECK(rounds.of(1) == 1);
  CHECK(rounds.filled(1, 0) == 80);
  CHECK(rounds.filled(2, 0) == 33);  // more than few rows
  ExpertRounds small(2, 12);
  small.raise(0, 3);
  small.raise(1, 13);
  CHECK(small.filled(0, 0) == 4);
  CHECK(small.filled(1, 0) == 12);
  CHECK(small.filled(1, 1) == 2);
}
