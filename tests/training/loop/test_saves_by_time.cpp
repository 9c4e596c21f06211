// Saves by time: a checkpoint when the newest one is too old by rank 0's clock, and nothing else.
#include "checkpoint/store/folder.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/parts_of_text.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kAtOnce = 1e-12;  // minutes: over at each step

struct TimedRun {
  ShardFolder folder;
  Config config = tiny_config();

  TimedRun() {
    config.data.train = make_corpus(folder);
    config.data.split = "80,20";
    config.train.steps = 6;
    config.train.evaluate_every = 4;
    config.train.evaluate_steps = 1;
    config.checkpoint.keep_last = 0;
    config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
  }
  LoopResult run(const std::string& name, double minutes, bool async = false) {
    config.checkpoint.every_minutes = minutes;
    config.checkpoint.async = async;
    config.run.directory = folder.file(name);
    LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told.empty());
    return result;
  }
  std::vector<std::int64_t> saved() const { return steps_in(checkpoints_folder(config.run.directory)); }
  /// The trained numbers, of the last checkpoint.
  std::string last_file() const {
    return contents_of(fmt::format("{}/{}/rank_00003.h5", checkpoints_folder(config.run.directory),
                                   step_folder_name(config.train.steps)));
  }
};

std::vector<std::string> losses(const LoopResult& result) {
  std::vector<std::string> all;
  for (const nlohmann::json& line : result.metrics) {
    all.push_back(line.at("kind").dump() + line.at("step").dump() + line.at("loss").dump());
  }
  return all;
}

}  // namespace

TEST_CASE("saves by time: at the step after the interval, and the same bits", "[fault-120]") {
  TimedRun run;
  const LoopResult without = run.run("without", 0);
  CHECK(run.saved() == std::vector<std::int64_t>{6});
  const std::string expected = run.last_file();

  const LoopResult timed = run.run("timed", kAtOnce);
  CHECK(run.saved() == std::vector<std::int64_t>{6, 5, 4, 3, 2, 1});
  CHECK(run.last_file() == expected);
  CHECK(losses(timed) == losses(without));

  run.config.checkpoint.every_steps = 4;
  run.run("both", 1e6);
  CHECK(run.saved() == std::vector<std::int64_t>{6, 4});
}

TEST_CASE("saves by time: a background save is not waited for", "[fault-120]") {
  TimedRun run;
  const LoopResult without = run.run("without", 0);
  const std::string expected = run.last_file();
  const LoopResult timed = run.run("timed", kAtOnce, true);
  CHECK(run.saved().size() >= 2);
  CHECK(run.saved().back() == 1);
  CHECK(run.last_file() == expected);
  CHECK(losses(timed) == losses(without));
  CHECK(times_in(timed.log, "which was still being written") <= 1);  // the last save waits
}

TEST_CASE("saves by time: 30 minutes unless the input file says otherwise", "[fault-120]") {
  CheckpointConfig checkpoint;
  CHECK(checkpoint.minutes_between() == 30);
  checkpoint.never = true;
  CHECK(checkpoint.minutes_between() == 0);
  checkpoint = {};
  checkpoint.every_minutes = 0;
  CHECK(checkpoint.minutes_between() == 0);
}
