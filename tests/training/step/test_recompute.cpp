// Recomputation changes no bit where the parity table (tests/parity/rows.cpp) does not look: evaluation, and threads.
#include <cmath>

#include "support/catch.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config config_with(RecomputeConfig recompute) {
  Config config = tiny_config();
  config.train.micro_batch_size = 2;
  config.recompute = recompute;
  return config;
}

/// Losses of an evaluation before and after a training step.
std::vector<double> evaluations(const RecomputeConfig& recompute, int pipeline) {
  Config config = config_with(recompute);
  config.parallel.pipeline = pipeline;
  return evaluate_tiny(config);
}

}  // namespace

TEST_CASE("evaluation of a model with recomputed layers is the same, bit for bit") {
  const int pipeline = GENERATE(1, 2);
  const std::vector<double> none = evaluations({}, pipeline);
  CHECK(std::abs(none[0] - none[1]) > 1e-4);
  CHECK(evaluations({"full"}, pipeline) == none);
  CHECK(evaluations({"full", 1}, pipeline) == none);
  CHECK(evaluations({"selective"}, pipeline) == none);
  CHECK(evaluations({"selective", 0, {RecomputePart::norms, RecomputePart::feed_forward}}, pipeline) == none);
}

TEST_CASE("recomputation on several threads per rank is the same, bit for bit") {
  Config config = config_with({});
  config.model.hidden_size = 128;  // wide enough that products and norms are cut up
  config.model.ffn_hidden_size = 512;
  config.model.sequence_length = config.model.max_position_embeddings = 64;
  config.run.threads = 2;
  const TrainingTrace none = train_tiny(config, 1, 1, 1, 2);
  for (const RecomputeConfig& recompute : {RecomputeConfig{"full"}, RecomputeConfig{"selective"}}) {
    config.recompute = recompute;
    const TrainingTrace again = train_tiny(config, 1, 1, 1, 2);
    CHECK(again.losses == none.losses);
    CHECK(again.gradients == none.gradients);
    CHECK(again.parameters == none.parameters);
  }
}
