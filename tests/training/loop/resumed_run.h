// Short runs on real checkpoints and data, with ranks as threads, that tests break off and resume.
#pragma once

#include <map>

#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/trainer_on_rank.h"
#include "training/loop/rank_files.h"
#include "training/step/trainer.h"

namespace megatron::test {

inline constexpr int kSteps = 4;

/// Trains from `from` (empty: from the start) to the last step, saving every step below `directory`; the numbers of
/// every step as text, every digit of them.
inline std::vector<std::string> train(Config config, const std::string& from, const std::string& directory) {
  const int ranks = static_cast<int>(config.parallel.tensor * config.parallel.pipeline * config.parallel.data);
  std::vector<std::string> lines;
  run_as_threads(ranks, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    Trainer& trainer = rank.trainer;
    std::vector<std::string> warnings;
    if (!from.empty()) trainer.resume(open_named_checkpoint(world, from, warnings));
    while (!trainer.finished()) {
      const StepResult result = trainer.train_step();
      trainer.save(directory, nlohmann::json::object());
      if (world.rank() != 0) continue;
      lines.push_back(fmt::format("step {} samples {} loss {} norm {} rate {} decay {}", trainer.step(),
                                  trainer.samples(), result.loss, result.gradient_norm, result.learning_rate,
                                  result.weight_decay));
    }
  });
  return lines;
}

inline std::string at(const std::string& directory, int step) {
  return fmt::format("{}/checkpoints/step_{:08}", directory, step);
}

inline Config small_run(const ShardFolder& folder) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = kSteps;
  config.learning_rate.peak = 1e-3;
  config.checkpoint.keep_last = 0;
  return config;
}

/// Trains once without a break and once from each step's checkpoint. Returns the numbers of the run without a break.
inline std::vector<std::string> require_no_trace_of_breaks(const Config& config, const ShardFolder& folder,
                                                           const std::string& name) {
  const auto steps = static_cast<int>(config.train.steps);
  const std::string straight = folder.file(name);
  const std::vector<std::string> expected = train(config, "", straight);
  REQUIRE(expected.size() == static_cast<std::size_t>(steps));
  const auto last = rank_files(at(straight, steps));
  REQUIRE(!last.empty());
  for (int k = 1; k < steps; ++k) {
    CAPTURE(k);
    const std::string resumed = folder.file(fmt::format("{}_from_{}", name, k));
    const std::vector<std::string> lines = train(config, at(straight, k), resumed);
    CHECK(lines == std::vector<std::string>(expected.begin() + k, expected.end()));
    CHECK(rank_files(at(resumed, steps)) == last);  // weights and both moments, bit by bit
  }
  return expected;
}

/// A layout, and how its ranks keep the optimizer's state.
struct Mode {
  const char* name;
  int tensor = 1, data = 1, pipeline = 1;
  const char* share = "none";
  const char* compute = "fp32";
  bool sequence_parallel = false;
  std::int64_t virtual_stages = 1;
  std::int64_t share_within = 0;
};

inline Config with_mode(Config config, const Mode& mode) {
  config.parallel.tensor = mode.tensor;
  config.parallel.data = mode.data;
  config.parallel.pipeline = mode.pipeline;
  config.parallel.sequence_parallel = mode.sequence_parallel;
  config.parallel.virtual_stages = mode.virtual_stages;
  if (mode.virtual_stages > 1) config.parallel.schedule = "interleaved";
  config.optimizer.share = mode.share;
  config.optimizer.share_within = mode.share_within;
  config.precision.compute = mode.compute;
  return config;
}

}  // namespace megatron::test
