// A head whose rows are in chunks: losses and other results of each token, and gradients, on tensor ranks. That they
// have the bits of one chunk where products are as large as in use: tests/training/step/test_head_chunks.cpp.
#include "distributed/comm/thread_communicator.h"
#include "models/layers/head.h"
#include "models/layers/layer_on_ranks.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kHeadRows = kSequence * kSamples;

/// Results of each target.
struct Results {
  Owned<float> losses = Owned<float>({kHeadRows}), maximum = Owned<float>({kHeadRows}),
               target_logit = Owned<float>({kHeadRows});
};

/// A head that is asked for the results of every target.
struct AskedHead final : TestedLayer {
  AskedHead(ParameterBuilder& builder, std::int64_t chunks, Results& results_)
      : head(builder,
             builder.column_parallel_weight(Role::embedding, "embedding.word.weight", kPaddedVocab, kHidden, 0.02),
             {.vocab = kVocab, .norm = {.hidden = kHidden}, .bias = true, .scale = 0.7, .chunks = chunks}),
        results(results_) {}
  void forward(Context& context, ConstTensor x, Tensor) override {
    const TargetResults asked{
        .losses = results.losses, .maximum = results.maximum, .target_logit = results.target_logit};
    context.results = &asked;
    head.forward(context, x, saved);
  }
  void backward(Context& context, Tensor, Tensor dx) override { head.backward(context, saved, dx); }
  Head head;
  Head::Saved saved;
  Results& results;
};

struct Played {
  LayerResults whole;
  std::vector<std::vector<float>> results;
};

Played play(std::int64_t chunks, int ranks, bool sequence_parallel) {
  std::vector<Results> results(static_cast<std::size_t>(ranks));
  LayerCase layer{.name = "head", .in = kHidden, .out = 0, .make = {}};
  // Also made once on one rank alone, for the parameters' shapes.
  layer.make = [&](ParameterBuilder& builder) {
    return std::make_unique<AskedHead>(builder, chunks, results[static_cast<std::size_t>(builder.region().rank())]);
  };
  Played played{run_on_ranks(layer, ranks, sequence_parallel), {}};
  for (const Results& each : results) {
    played.results.push_back(each.losses.values());
    played.results.push_back(each.maximum.values());
    played.results.push_back(each.target_logit.values());
  }
  return played;
}

}  // namespace

TEST_CASE("head chunks: what one chunk computes, on every rank") {
  const int ranks = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  const Played one = play(1, ranks, sequence_parallel);
  for (const float loss : one.results[0]) CHECK(loss > 0);
  for (const std::int64_t chunks : {2, 3, 5, 23, 24, 1000}) {
    CAPTURE(ranks, sequence_parallel, chunks);
    const Played some = play(chunks, ranks, sequence_parallel);
    CHECK(some.whole.copies_agree);
    CHECK(some.whole.y[0] == Approx(one.whole.y[0]).epsilon(1e-6));
    CHECK(distance(some.whole.dx, one.whole.dx) <= 1e-6);
    for (std::size_t i = 0; i < one.results.size(); ++i) {
      CHECK(distance(some.results[i], one.results[i]) <= 1e-6);
      CHECK(some.results[i] == some.results[i % 3]);  // the same on every rank
    }
    for (const auto& [name, gradient] : one.whole.gradients) {
      CAPTURE(name);
      CHECK(distance(some.whole.gradients.at(name), gradient) <= 1e-6);
    }
  }
}
