// checkpoint.keep_best: the checkpoint with the lowest validation loss stays, whatever else is removed.
#include <algorithm>

#include "checkpoint/store/folder.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A run whose loss falls and rises again: a rate that grows far beyond what the model bears.
struct RisingRun {
  ShardFolder folder;
  Config config = tiny_config();

  RisingRun() {
    Documents documents(60, std::vector<std::int32_t>(40));
    for (auto& document : documents) {
      for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<std::int32_t>(1 + i % 9);
    }
    make_shard(folder.file("corpus"), documents, 0, 1, small_vocabulary(50));
    config.data.train = config.data.validation = folder.file("corpus");
    config.train.steps = 12;
    config.train.evaluate_every = 2;
    config.train.evaluate_steps = 4;
    config.train.evaluate_at_start = true;
    config.learning_rate.peak = 1;
    config.learning_rate.decay = "constant";
    config.learning_rate.warmup_steps = 12;
    config.checkpoint.every_steps = 3;
    config.checkpoint.keep_last = 2;
    config.checkpoint.keep_best = true;
    config.parallel.tensor = config.parallel.data = 2;
  }
  LoopResult run(const std::string& name) {
    config.run.directory = folder.file(name);
    LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told.empty());
    return result;
  }
  std::string checkpoints() const { return checkpoints_folder(config.run.directory); }
  std::vector<std::int64_t> saved() const { return steps_in(checkpoints()); }
  std::string best() const { return contents_of(checkpoints() + "/best"); }
};

std::int64_t step_of_lowest(const LoopResult& result) {
  std::int64_t step = -1;
  double lowest = std::numeric_limits<double>::infinity();
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") != "eval" || line.at("split") != "validation" || line.at("loss").is_null()) continue;
    if (line.at("loss").get<double>() >= lowest) continue;
    lowest = line.at("loss").get<double>();
    step = line.at("step").get<std::int64_t>();
  }
  return step;
}

}  // namespace

TEST_CASE("keep_best: the lowest validation loss is saved and stays", "[fault-121]") {
  RisingRun run;
  run.config.checkpoint.async = GENERATE(false, true);
  const LoopResult result = run.run("run");
  const std::int64_t lowest = step_of_lowest(result);
  REQUIRE(lowest > 0);
  REQUIRE(lowest < 9);  // so that keep_last alone would have removed it
  CHECK(run.saved() == std::vector<std::int64_t>{12, 9, lowest});
  CHECK(run.best() == step_folder_name(lowest) + "\n");
  CHECK_THAT(result.log, Contains(fmt::format("step {} has the lowest validation loss so far, ", lowest)));

  run.config.checkpoint.keep_best = false;
  run.run("without");
  CHECK(run.saved() == std::vector<std::int64_t>{12, 9});
  CHECK_FALSE(std::filesystem::exists(run.checkpoints() + "/best"));
}

TEST_CASE("keep_best: a resumed run knows which one it is", "[fault-121]") {
  RisingRun run;
  const std::int64_t lowest = step_of_lowest(run.run("whole"));
  const std::vector<std::int64_t> expected = run.saved();
  for (const std::int64_t part : {lowest, lowest + 1, std::int64_t{11}}) {
    CAPTURE(part);
    const std::string name = "parts" + std::to_string(part);
    run.config.train.stop_after = part;
    run.run(name);
    run.config.train.stop_after = 0;
    run.run(name);
    CHECK(run.best() == step_folder_name(lowest) + "\n");
    const std::vector<std::int64_t> saved = run.saved();
    CHECK(std::count(saved.begin(), saved.end(), lowest) == 1);
    CHECK(saved.size() == expected.size());
  }
}

TEST_CASE("keep_best: a best checkpoint that is gone is told, and sought anew", "[fault-121]") {
  RisingRun run;
  run.config.train.stop_after = 9;
  const std::int64_t lowest = step_of_lowest(run.run("run"));
  std::filesystem::remove_all(run.checkpoints() + "/" + step_folder_name(lowest));
  run.config.train.stop_after = 0;
  const LoopResult resumed = run.run("run");
  CHECK_THAT(resumed.log, Contains(fmt::format("the checkpoint of step {}, which had the lowest validation", lowest)) &&
                              Contains("step 10 has the lowest validation loss so far"));
}

TEST_CASE("keep_best: begins anew where the validation samples have changed", "[fault-121]") {
  RisingRun run;
  run.config.train.stop_after = 9;
  const std::int64_t lowest = step_of_lowest(run.run("run"));
  make_shard(run.folder.file("other"), Documents(20, std::vector<std::int32_t>(40, 7)), 0, 1, small_vocabulary(50));
  run.config.data.validation = run.folder.file("other");
  run.config.train.stop_after = 0;
  const LoopResult resumed = run.run("run");
  CHECK_THAT(resumed.log, Contains(fmt::format("step {} was the best on other validation samples", lowest)) &&
                              Contains("step 10 has the lowest validation loss so far"));
  const std::vector<std::int64_t> saved = run.saved();
  CHECK(std::count(saved.begin(), saved.end(), lowest) == 0);
}

TEST_CASE("keep_best: a run without a validation set is told", "[fault-121]") {
  RisingRun run;
  run.config.data.validation = {};
  run.config.data.split = "100";
  run.config.train.steps = 2;
  run.config.learning_rate.warmup_steps = 0;
  CHECK_THAT(run.run("run").log, Contains("checkpoint.keep_best = true has nothing to compare"));
  CHECK(run.saved() == std::vector<std::int64_t>{2});
}
