// Every place of a model that drops numbers draws masks of its own: no two of a step, and no two steps, share a key.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using DropoutKeys = std::vector<std::uint64_t>;

struct RecordedMasks final : OpsDecorator {
  using OpsDecorator::OpsDecorator;
  DropoutKeys forward, backward, noise;

  void dropout_add_forward(const DropoutAddForwardArgs& args) override {
    record(forward, args.dropout);
    OpsDecorator::dropout_add_forward(args);
  }
  void dropout_add_backward(const DropoutAddBackwardArgs& args) override {
    record(backward, args.dropout);
    OpsDecorator::dropout_add_backward(args);
  }
  void attention_forward(const AttentionForwardArgs& args) override {
    record(forward, args.dropout);
    OpsDecorator::attention_forward(args);
  }
  void attention_backward(const AttentionBackwardArgs& args) override {
    record(backward, args.dropout);
    OpsDecorator::attention_backward(args);
  }
  void jitter_rows(const JitterRowsArgs& args) override {
    noise.push_back(args.jitter.key);
    OpsDecorator::jitter_rows(args);
  }

 private:
  static void record(DropoutKeys& keys, const Dropout& dropout) {
    if (dropout.probability > 0) keys.push_back(dropout.key);
  }
  void pass(const char*, const std::function<void()>& call) override { call(); }
};

struct StepKeys {
  DropoutKeys masks, noise;
};

/// Keys of every mask of each of two steps of one micro-batch; those of all noise, in the forward and the
/// backward.
std::vector<StepKeys> keys_of(Config config) {
  config.train.micro_batch_size = config.train.global_batch_size;
  std::vector<StepKeys> steps;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    auto recorded = std::make_unique<RecordedMasks>(std::move(backend.ops));
    RecordedMasks& masks = *recorded;
    backend.ops = std::move(recorded);
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    for (int step = 1; step <= 2; ++step) {
      masks.forward.clear();
      masks.backward.clear();
      masks.noise.clear();
      replica.forward_backward(batches.step(step), step, batches.loss(), timers);
      std::sort(masks.forward.begin(), masks.forward.end());
      std::sort(masks.backward.begin(), masks.backward.end());
      communicator_cases::expect(masks.backward == masks.forward, "a backward with other masks");
      steps.push_back({masks.forward, masks.noise});
    }
  });
  return steps;
}

}  // namespace

TEST_CASE("dropout: every place of a model and every step has a key of its own") {
  struct Model {
    const char* name;
    void (*change)(ModelConfig&);
    std::size_t masks;  ///< 1 of embeddings, 3 of a layer, 5 of one with cross-attention, 1 of a task's head
  };
  const auto as_it_is = [](ModelConfig&) {};
  const auto classifier = [](ModelConfig& model) {
    like_bert(model);
    model.task_outputs = 3;
  };
  for (const Model& model :
       {Model{"gpt", as_it_is, 1 + 4 * 3}, Model{"bert", like_bert, 1 + 4 * 3},
        Model{"Megatron's bert", like_megatron_bert, 1 + 4 * 3}, Model{"a classifier", classifier, 1 + 4 * 3 + 1},
        Model{"t5", like_t5, 2 + 3 * 3 + 5}, Model{"Megatron's t5", like_megatron_t5, 2 + 2 * 3 + 2 * 5}}) {
    CAPTURE(model.name);
    Config config = tiny_config();
    model.change(config.model);
    if (config.model.task_outputs > 0) config.task.name = "classification";
    std::set<std::uint64_t> different;
    for (const StepKeys& keys : keys_of(config)) {
      CHECK(keys.masks.size() == model.masks);
      CHECK(keys.noise.empty());
      different.insert(keys.masks.begin(), keys.masks.end());
    }
    CHECK(different.size() == 2 * model.masks);
  }
}

TEST_CASE("noise of routers: one key per layer and step also when recomputed") {
  const bool recompute = GENERATE(false, true);
  Config config = tiny_config();
  with_residual_experts(config.model);
  if (recompute) {
    config.recompute.mode = "full";
    config.model.hidden_dropout = config.model.attention_dropout = 0;  // whose masks would be drawn twice, too
  }
  std::set<std::uint64_t> masks, noise;
  for (const StepKeys& keys : keys_of(config)) {
    std::map<std::uint64_t, int> uses;
    for (const std::uint64_t key : keys.noise) ++uses[key];
    CHECK(uses.size() == 2);  // every second of four layers has experts
    for (const auto& [key, count] : uses) {
      CHECK(count == (recompute ? 4 : 3));  // the router's input, twice, and its gradient
      noise.insert(key);
    }
    masks.insert(keys.masks.begin(), keys.masks.end());
  }
  CHECK(noise.size() == 4);
  for (const std::uint64_t key : noise) CHECK(masks.count(key) == 0);
}
