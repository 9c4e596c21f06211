// A new run begins with another's weights: of a model that is the same in all that weights mean, and may read longer
// or shorter sequences.
#include <cmath>

#include "checkpoint/store/difference.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/open_checkpoint.h"
#include "support/require_error.h"
#include "training/datasets/datasets.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A run that has been trained, and the beginning of one with its weights, which changes them by nothing.
struct Runs {
  explicit Runs(
      const std::string& positions, void (*variant)(ModelConfig&) = [](ModelConfig&) {}) {
    first.data.train = make_corpus(folder);
    first.model.position_embedding = positions;
    variant(first.model);
    first.learning_rate.decay = "constant";
    first.checkpoint.every_steps = first.train.steps = 1;
    first.run.directory = folder.file("first");
    REQUIRE(run_loop(first).told[0].empty());
    second = first;
    second.train.seed = 99;  // whose own initial weights would be others
    second.learning_rate.peak = 1e-60;
    second.optimizer.weight_decay = 0;
    second.checkpoint.initialize_from = first.run.directory;
    second.run.directory = folder.file("second");
  }

  /// The second run ends well and has all of the first one's weights; its log.
  std::string require_weights() const {
    const LoopResult result = run_loop(second);
    CHECK(result.told[0].empty());
    for (const TensorDifference& tensor :
         compare_tensors(open_alone(second.run.directory), open_alone(first.run.directory), false)) {
      CAPTURE(tensor.name);
      CHECK(tensor.equal());
    }
    return result.log;
  }
  /// The checkpoint is refused for this alone, and another one is to be chosen by the key.
  void require_refused(const std::string& for_what, const std::string& key = "checkpoint.initialize_from") const {
    const std::string told = run_loop(second).told[0];
    CHECK_THAT(told, Contains("checkpoint") && Contains("of another model") && Contains("\n  " + for_what));
    CHECK_THAT(told, Contains("or another " + key + ":"));
    CHECK(std::count(told.begin(), told.end(), '\n') == 1);
  }

  ShardFolder folder;
  Config first = tiny_config(), second;
};

}  // namespace

TEST_CASE("initialize_from: rotary positions allow longer sequences and scaling") {
  Runs runs("rope");
  ModelConfig& model = runs.second.model;
  model.sequence_length = model.max_position_embeddings = 32;
  model.rotary_base = 40000;
  model.rotary_scaling = {.type = "linear", .factor = 2};
  const std::string log = runs.require_weights();
  CHECK_THAT(log, Contains("of a model with sequence_length = 16, this run's has 32"));
  CHECK_THAT(log, Contains("of a model with rotary.base = 10000.0, this run's has 40000.0"));
  CHECK_THAT(log, Contains("of a model with rotary.scaling = ") && Contains("linear"));
  CHECK_THAT(log, !Contains("max_position_embeddings"));
}

TEST_CASE("which channels turn is what the weights have learned") {
  Runs runs("rope");
  runs.second.model.rotary_fraction = 0.5;
  runs.require_refused("rotary.fraction: 1.0 in the checkpoint, 0.5 in this run");
}

TEST_CASE("initialize_from: without a position table sequences have any length") {
  const std::string positions = GENERATE("alibi", "none");
  Runs runs(positions);
  runs.second.model.sequence_length = runs.second.model.max_position_embeddings = 24;
  runs.require_weights();
}

TEST_CASE("initialize_from: a learned table keeps its size for shorter sequences") {
  Runs runs("learned");
  runs.second.model.sequence_length = 8;
  CHECK_THAT(runs.require_weights(), Contains("sequence_length = 16, this run's has 8"));
  runs.second.run.directory = runs.folder.file("third");
  runs.second.model.max_position_embeddings = 32;
  runs.require_refused("max_position_embeddings: 16 in the checkpoint, 32 in this run");
}

TEST_CASE("initialize_from: choice biases may be new, and nothing else is") {
  Runs runs("rope", with_experts);
  runs.second.model.moe.bias_rate = 0.01;
  runs.require_weights();
  CHECK(open_alone(runs.second.run.directory).tensors().contains("layers.1.moe.router.choice_bias"));
}

TEST_CASE("checkpoint.load: the sequence length must match but no unused table") {
  Runs runs("rope");
  Config& second = runs.second;
  std::swap(second.checkpoint.load, second.checkpoint.initialize_from);
  second.train.steps = 2;
  second.model.max_position_embeddings = 32;
  CHECK(run_loop(second).told[0].empty());
  second.run.directory = runs.folder.file("third");
  second.model.sequence_length = 32;
  runs.require_refused("sequence_length: 16 in the checkpoint, 32 in this run", "checkpoint.load");
  runs.first.model.sequence_length = 32;
  runs.second = runs.first;
  runs.require_refused("sequence_length: 16 in the checkpoint, 32 in this run", "run.directory");
}

namespace {

double loss_of_step(const LoopResult& result, int step) {
  CHECK(result.told[0].empty());
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") == "train" && line.at("step") == step) return line.at("loss").get<double>();
  }
  return std::nan("");
}

struct ContinuedRuns {
  ShardFolder folder;
  Config first = tiny_config(), second;
  LoopResult whole;

  explicit ContinuedRuns(const std::string& order) {
    first.data.train = make_corpus(folder);
    first.data.order = order;
    first.model.hidden_dropout = first.model.attention_dropout = 0;  // dropout depends on the step
    first.train.steps = 4;
    first.checkpoint.every_steps = 1;
    first.checkpoint.keep_last = 0;
    first.run.directory = folder.file("first");
    whole = run_loop(first);
    second = first;
    second.train.steps = 2;
    second.checkpoint.initialize_from = folder.file("first/checkpoints/step_00000002");
    second.checkpoint.consumed_samples = 2 * first.train.global_batch_size;
    second.run.directory = folder.file("second");
  }
};

}  // namespace

TEST_CASE("initialize_from: consumed_samples is where the data's order begins") {
  ContinuedRuns runs(GENERATE("epoch", "megatron"));
  const LoopResult second = run_loop(runs.second);
  CHECK(loss_of_step(second, 1) == loss_of_step(runs.whole, 3));  // the same weights and samples
  CHECK_THAT(second.log, Contains("the data's order begins after 16 consumed samples"));
  CHECK(second.metrics.back().at("samples") == 16);  // this run's

  runs.second.checkpoint.consumed_samples = 0;
  runs.second.data.order_samples = runs.first.data.order == "epoch" ? 0 : 32;
  runs.second.run.directory = runs.folder.file("from_the_start");
  CHECK(loss_of_step(run_loop(runs.second), 1) != loss_of_step(runs.whole, 3));
}

TEST_CASE("initialize_from: consumed samples are the checkpoint's after a resume") {
  ContinuedRuns runs("epoch");
  const double expected = loss_of_step(run_loop(runs.second), 2);
  runs.second.run.directory = runs.folder.file("parts");
  runs.second.train.stop_after = 1;
  run_loop(runs.second);
  runs.second.train.stop_after = 0;
  runs.second.checkpoint.consumed_samples = 0;  // and whatever this says then
  CHECK(loss_of_step(run_loop(runs.second), 2) == expected);
}

TEST_CASE("initialize_from: consumed samples beyond Megatron's order are refused") {
  ContinuedRuns runs("megatron");
  runs.second.data.order_samples = 9;
  runs.second.checkpoint.consumed_samples = 10000;
  require_error(ErrorKind::configuration,
                {"the run has 10016 samples with checkpoint.consumed_samples, but data.order_samples = 9 makes"},
                [&] { Datasets(runs.second); });
}
