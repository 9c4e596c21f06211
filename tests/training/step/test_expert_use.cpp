// Counts of the experts' choices: the same integers on every layout, from training alone; and the bias that balances
// them without a loss.
#include "training/step/expert_use.h"

#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Choices = std::vector<double>;

Config config_with_experts() {
  Config config = tiny_config();
  with_experts(config.model);
  config.model.init_std = 0.2;  // experts that a token prefers clearly
  return config;
}

/// Runs `work` on one rank with a replica and its batches.
void on_one_rank(const Config& config, const std::function<void(Replica&, TinyBatches&, Timers&)>& work) {
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    work(replica, batches, timers);
  });
}

Choices numbers_of(std::span<const double> values) {
  return {values.begin(), values.end()};
}

Choices of_layer(const Choices& choices, std::int64_t layer, std::int64_t experts) {
  const auto first = choices.begin() + layer * (experts + 1);
  return {first, first + experts};
}

std::vector<float> bias_of(const ModelState& state) {
  return {state.value.as<float>(), state.value.as<float>() + state.elements()};
}

}  // namespace

TEST_CASE("experts: every choice is counted once, whatever the schedule") {
  Config config = config_with_experts();
  const std::int64_t experts = config.model.moe.experts;
  const double tokens = 8.0 * 16, chosen = tokens * static_cast<double>(config.model.moe.top_k);
  const TrainingTrace one = train_tiny(config, 1, 1, 1, 2);
  REQUIRE(one.choices.size() == 2);
  for (const Choices& choices : one.choices) {
    REQUIRE(static_cast<std::int64_t>(choices.size()) == 2 * (experts + 1));  // layers 1 and 3
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const Choices of = of_layer(choices, layer, experts);
      CHECK(std::accumulate(of.begin(), of.end(), 0.0) == chosen);
    }
  }
  CHECK(one.gap > 1e-5);  // more than rounding: otherwise layouts may choose otherwise
  CHECK(one.gap < 0.1);

  struct Layout {
    int tensor, data, pipeline;
    std::function<void(Config&)> change;
  };
  const Layout layouts[] = {
      {1, 1, 1, [](Config& c) { c.recompute.mode = "full"; }},
      {1, 1, 1, [](Config& c) { c.train.micro_batch_size = 4; }},
      {2, 1, 1, [](Config& c) { c.parallel.sequence_parallel = true; }},
      {1, 4, 1, [](Config& c) { c.parallel.expert = 2; }},
      {1, 2, 2, [](Config& c) { c.parallel.schedule = "zero_bubble"; }},
      {2, 2, 2,
       [](Config& c) {
         c.parallel.sequence_parallel = true;
         c.optimizer.share = "state";
         c.parallel.expert = 2;
         c.recompute.mode = "full";
       }},
      {1, 1, 1, [](Config& c) { c.parallel.context = 4; }},
      {2, 2, 1,
       [](Config& c) {
         c.parallel.context = 2;
         c.parallel.sequence_parallel = true;
         c.parallel.expert = 2;
       }},
      {1, 1, 2,
       [](Config& c) {
         c.parallel.schedule = "interleaved";
         c.parallel.virtual_stages = 2;
       }},
  };
  for (const Layout& layout : layouts) {
    INFO("tensor " << layout.tensor << " data " << layout.data << " pipeline " << layout.pipeline);
    Config changed = config;
    layout.change(changed);
    CHECK(train_tiny(changed, layout.tensor, layout.data, layout.pipeline, 2).choices == one.choices);
  }
}

TEST_CASE("experts without drops: choices are counted, and all found a place") {
  Config config = config_with_experts();
  MoeConfig& moe = config.model.moe;
  const MoeConfig standard;
  moe.drop = "none";
  moe.buffer = 1;
  moe.capacity_factor = moe.evaluation_capacity_factor = standard.capacity_factor;
  moe.minimum_capacity = standard.minimum_capacity;
  const TrainingTrace one = train_tiny(config, 1, 1, 1, 2);
  const double chosen = 8.0 * 16 * static_cast<double>(moe.top_k);
  for (const Choices& choices : one.choices) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const Choices of = of_layer(choices, layer, moe.experts);
      CHECK(std::accumulate(of.begin(), of.end(), 0.0) == chosen);
      CHECK(choices[static_cast<std::size_t>((layer + 1) * (moe.experts + 1) - 1)] == 0);
    }
  }
  config.parallel.expert = 2;
  CHECK(train_tiny(config, 1, 2, 1, 2).choices == one.choices);
}

TEST_CASE("experts: what found no place is what is past the capacity") {
  Config config = config_with_experts();
  config.model.moe.capacity_factor = 0.5;  // 16 tokens with 2 choices each: 4 places in each of 4 experts
  config.model.moe.minimum_capacity = 1;
  config.train.global_batch_size = 1;  // so that the counts are one sample's
  for (const Choices& choices : train_tiny(config, 1, 1, 1, 3).choices) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      double dropped = 0;
      for (const double count : of_layer(choices, layer, 4)) dropped += std::max(0.0, count - 4);
      CHECK(dropped >= 16);  // 16 of 32 choices
      CHECK(choices[static_cast<std::size_t>(layer * 5 + 4)] == dropped);
    }
  }
}

TEST_CASE("experts: an evaluation and a step that is played again count nothing") {
  const Config config = config_with_experts();
  const TrainingTrace expected = train_tiny(config, 1, 1, 1, 1);
  on_one_rank(config, [&](Replica& replica, TinyBatches& batches, Timers& timers) {
    replica.evaluate(batches.step(9), batches.loss().counts, timers);
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    replica.diagnose_non_finite_step(micro_batches, 1, batches.loss(), timers);
    const StepSums sums = replica.forward_backward(micro_batches, 1, batches.loss(), timers);
    CHECK(numbers_of(replica.update(sums, {}, timers).choices) == expected.choices[0]);
  });
}

TEST_CASE("choice bias: moves against the whole batch except in a skipped step") {
  Config config = config_with_experts();
  with_balanced_experts(config.model);
  on_one_rank(config, [&](Replica& replica, TinyBatches& batches, Timers& timers) {
    const std::vector<ModelState>& states = replica.store().states();
    REQUIRE(states.size() == 2);
    CHECK(states[0].name == "layers.1.moe.router.choice_bias");
    CHECK(states[1].name == "layers.3.moe.router.choice_bias");
    std::vector<std::vector<float>> expected(2, std::vector<float>(4));
    for (int step = 1; step <= 4; ++step) {
      INFO("step " << step);
      const bool skipped = step == 3;
      const StepSums sums =
          replica.forward_backward(batches.step(step), step, {batches.loss().counts, skipped ? INFINITY : 1}, timers);
      const Replica::Update update = replica.update(sums, {.learning_rate = 1e-3}, timers);
      REQUIRE(update.skipped == skipped);
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const Choices counts = of_layer(numbers_of(update.choices), static_cast<std::int64_t>(layer), 4);
        for (std::size_t expert = 0; expert < 4 && !skipped; ++expert) {
          if (counts[expert] < 64) expected[layer][expert] += 0.01f;  // 8 · 16 tokens, 2 choices, 4 experts
          if (counts[expert] > 64) expected[layer][expert] -= 0.01f;
        }
        CHECK(bias_of(states[layer]) == expected[layer]);
      }
    }
    CHECK(expected[0] != std::vector<float>(4));
  });
}

TEST_CASE("choice bias: the same on every layout, and in the checkpoint once") {
  Config config = config_with_experts();
  with_balanced_experts(config.model);
  const auto biases = [](const TrainingTrace& trace) {
    NamedValues found;
    for (const auto& [name, values] : trace.parameters) {
      if (name.ends_with("choice_bias")) found[name] = values;
    }
    return found;
  };
  const TrainingTrace one = train_tiny(config, 1, 1, 1, 4);
  REQUIRE(biases(one).size() == 2);
  REQUIRE(one.gap > 1e-5);
  Config changed = config;
  changed.parallel.sequence_parallel = true;
  changed.optimizer.share = "state";
  changed.parallel.expert = 2;
  const TrainingTrace cube = train_tiny(changed, 2, 2, 2, 4);
  CHECK(cube.choices == one.choices);
  CHECK(biases(cube) == biases(one));
}

TEST_CASE("choice bias: experts that get everything come to get their share") {
  Config config = config_with_experts();
  with_balanced_experts(config.model);
  config.model.moe.bias_rate = 0.005;
  config.model.moe.z_coefficient = 0;
  on_one_rank(config, [&](Replica& replica, TinyBatches& batches, Timers& timers) {
    for (const ModelState& state : replica.store().states()) {
      state.value.as<float>()[0] = 1;  // no two others can make up for it
    }
    double first = 0, last = 0;
    for (int step = 1; step <= 250; ++step) {
      const StepSums sums = replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
      const ExpertUse use(4, replica.update(sums, {.learning_rate = 0}, timers).choices, 0);  // the bias alone moves
      double most = 0;
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        for (const double share : use.shares(layer)) most = std::max(most, share);
      }
      if (step == 1) first = most;
      last = most;
    }
    CHECK(first == 0.5);  // one of each token's two choices
    CHECK(last < 0.29);   // 0.25 if all are equal
  });
}

TEST_CASE("experts: the numbers of several steps add up") {
  ExpertUse all;
  all.add(ExpertUse(2, Choices{3, 1, 1, 0, 4, 2}, 0.5));
  all.add(ExpertUse(2, Choices{1, 3, 0, 0, 4, 1}, 0.25));
  CHECK(all.steps == 2);
  CHECK(all.layers() == 2);
  CHECK(all.least_gap == 0.25);
  CHECK(all.shares(0) == Choices{0.5, 0.5});
  CHECK(all.shares(1) == Choices{0, 1});
  CHECK(all.dropped() == 0.25);
  CHECK(ExpertUse().layers() == 0);
  CHECK(ExpertUse().dropped() == 0);
}
