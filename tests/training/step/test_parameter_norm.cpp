// The norm of all trained parameters: the same on every layout, that of what checkpoints hold, and paid for by the
// steps whose line has it.
#include <atomic>
#include <cmath>
#include <mutex>

#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/trainer_on_rank.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Norms after each of three steps, which all ranks have, and what the last one's parameters say themselves.
struct Norms {
  std::vector<double> by_step;
  double direct = 0;
};

Norms train(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const auto ranks = static_cast<int>(parallel.tensor * parallel.context * parallel.data * parallel.pipeline);
  Norms norms;
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    std::vector<double> mine;
    for (int step = 0; step < 3; ++step) {
      rank.trainer.train_step();
      mine.push_back(rank.trainer.parameter_norm());
    }
    const std::lock_guard lock(mutex);
    if (norms.by_step.empty()) norms.by_step = mine;
    CHECK(mine == norms.by_step);
    // Each element has one writer, who has its master.
    for (const TensorSlice& slice : rank.trainer.replica().owned_slices()) {
      if (slice.name.ends_with(".router.choice_bias")) continue;  // no gradient trains it
      for (std::int64_t i = 0; i < slice.count; ++i) {
        const double value = static_cast<double>(slice.value.as<float>()[i]);
        norms.direct += value * value;
      }
    }
  });
  norms.direct = std::sqrt(norms.direct);
  return norms;
}

Config with(const Config& of, const ParallelConfig& parallel, bool distributed) {
  Config config = of;
  config.parallel = parallel;
  config.optimizer.share = distributed ? "state" : "none";
  return config;
}

void require_same(const Config& config, const std::vector<ParallelConfig>& layouts) {
  const Norms one = train(config);
  const double rounding = config.precision.dtype() == DType::f32 ? 2e-6 : 1e-4;  // training differs between layouts
  for (const ParallelConfig& layout : layouts) {
    // In sets of copies, too, where there are enough.
    const std::int64_t least = layout.context * layout.expert, sets = layout.context * layout.data / least;
    for (const int share : {0, 1, 2}) {
      Config own = with(config, layout, share > 0);
      if (share == 2 && (sets % 2 != 0 || least * sets / 2 == 1)) continue;
      if (share == 2) own.optimizer.share_within = least * sets / 2;
      CAPTURE(layout.tensor, layout.context, layout.data, layout.pipeline, layout.expert, share);
      const Norms norms = train(own);
      CHECK(norms.by_step.back() == Approx(norms.direct).epsilon(1e-12));
      for (std::size_t i = 0; i < 3; ++i) CHECK(norms.by_step[i] == Approx(one.by_step[i]).epsilon(rounding));
    }
  }
}

}  // namespace

TEST_CASE("parameter norm: a tied model has the same on every layout", "[train]") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.parallel.data = 1;
  config.precision.compute = GENERATE("fp32", "bf16");
  CAPTURE(config.precision.compute);
  REQUIRE(config.model.tie_embeddings);
  std::vector<ParallelConfig> layouts(6);
  layouts[1].data = 4;
  layouts[2].tensor = 4;
  layouts[3].context = layouts[3].data = 2;
  layouts[4].pipeline = layouts[4].data = 2;
  layouts[5].tensor = layouts[5].pipeline = layouts[5].data = 2;
  layouts[5].sequence_parallel = true;
  for (ParallelConfig& layout : layouts) layout.data = std::max<std::int64_t>(layout.data, 1);
  require_same(config, layouts);
}

TEST_CASE("parameter norm: experts count once, and choice biases not", "[train]") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.parallel.data = 1;
  with_balanced_experts(config.model);
  std::vector<ParallelConfig> layouts(3);
  layouts[0].data = layouts[0].expert = 2;
  layouts[1].data = 4;
  layouts[1].expert = 2;
  layouts[2].tensor = layouts[2].pipeline = layouts[2].data = layouts[2].expert = 2;
  layouts[2].sequence_parallel = true;
  require_same(config, layouts);
}

TEST_CASE("parameter norm: steps without a line of metrics do not sum it") {
  const ShardFolder folder;
  const auto count = [&](const std::string& name, bool wanted) {
    Config config = small_run(folder, 1, 1);
    config.parallel.data = 1;
    config.train.steps = 10;
    config.run.directory = folder.file(name);
    config.run.metrics_every = 4;
    config.run.parameter_norm = wanted;
    std::atomic<int> sums = 0;
    const LoopResult result =
        run_loop(config, [&](InjectedOps& ops, const ProcessGrid&) { ops.after_square_sum = [&] { ++sums; }; });
    int lines = 0;
    for (const nlohmann::json& line : result.metrics) {
      if (line.at("kind") != "train") continue;
      ++lines;
      CHECK(line.contains("parameter_norm") == wanted);
    }
    CHECK(lines == 4);
    return sums.load();
  };
  CHECK(count("without", false) == 10);  // the gradient's, in each step
  CHECK(count("with", true) == 14);
}
