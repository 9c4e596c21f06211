// Validation by sets with names, and before the first step.
#include "support/catch.h"
#include "support/loop_on_threads.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct NamedRun {
  ShardFolder folder;
  Config config = tiny_config();

  NamedRun() {
    config.data.train = make_corpus(folder);
    for (const char* name : {"a", "b"}) {
      Documents documents;
      for (int i = 0; i < 9; ++i) {
        documents.emplace_back();
        for (int j = 0; j < 30 + i; ++j) documents.back().push_back(TinyBatches::token(i, j, name[0], 49));
        documents.back().push_back(49);
      }
      make_shard(folder.file(name), documents, 0, 1, small_vocabulary(50));
    }
    config.train.steps = 4;
    config.train.evaluate_every = 2;
    config.train.evaluate_steps = 1;
  }
  void validate_by_name() { config.data.validation.parts = {{folder.file("a"), 3, "a"}, {folder.file("b"), 1, "b"}}; }
  LoopResult run(const std::string& name) {
    config.run.directory = folder.file(name);
    LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told.empty());
    return result;
  }
};

std::map<std::int64_t, double> losses(const LoopResult& result, const std::string& split) {
  std::map<std::int64_t, double> found;
  for (const nlohmann::json& line : result.metrics) {
    const bool fits = split == "train" ? line.at("kind") == "train" : line.value("split", "") == split;
    if (fits) found[line.at("step").get<std::int64_t>()] = line.at("loss").get<double>();
  }
  return found;
}

}  // namespace

TEST_CASE("validation by name: each set's loss, and their weighted mean", "[fault-122]") {
  NamedRun run;
  run.config.data.order = GENERATE("epoch", "megatron", "megatron_core");
  run.config.parallel.pipeline = 2;
  run.validate_by_name();
  const LoopResult named = run.run("named");
  std::map<std::string, std::map<std::int64_t, double>> alone;
  for (const char* name : {"a", "b"}) {
    run.config.data.validation = run.folder.file(name);
    const LoopResult result = run.run(name);
    alone[name] = losses(result, "validation");
    CHECK(losses(result, "train") == losses(named, "train"));
  }
  CHECK(losses(named, "validation/a") == alone["a"]);
  CHECK(losses(named, "validation/b") == alone["b"]);
  const auto mean = losses(named, "validation");
  REQUIRE(mean.size() == 2);
  for (const auto& [step, loss] : mean) CHECK(loss == Approx(0.75 * alone["a"][step] + 0.25 * alone["b"][step]));
  CHECK_THAT(named.log, Contains("validation/a loss ") && Contains("validation loss "));
  CHECK_THAT(contents_of(run.folder.file("named/report.html")), Contains("validation/b"));
}

TEST_CASE("validation by name: sets of data.train name their shares of the split", "[fault-122]") {
  NamedRun run;
  run.config.data.train.parts = {{run.folder.file("a"), 1, "a"}, {run.folder.file("b"), 1, "b"}};
  run.config.data.split = "60,40";
  const LoopResult result = run.run("run");
  CHECK(losses(result, "validation/a").size() == 2);
  CHECK(losses(result, "validation/b").size() == 2);
  CHECK(losses(result, "validation").size() == 2);
}

TEST_CASE("validation by name: a run that goes back removes the lines of all sets", "[fault-122]") {
  NamedRun run;
  run.validate_by_name();
  run.config.checkpoint.every_steps = 1;
  run.config.checkpoint.keep_last = 0;
  const auto whole = losses(run.run("run"), "validation/a");
  std::filesystem::remove_all(run.folder.file("run/checkpoints/step_00000004"));
  std::filesystem::remove_all(run.folder.file("run/checkpoints/step_00000003"));
  const LoopResult again = run.run("run");
  CHECK(losses(again, "validation/a") == whole);
  CHECK(std::count_if(again.metrics.begin(), again.metrics.end(),
                      [](const auto& line) { return line.value("split", "") == "validation/a"; }) == 2);
}

TEST_CASE("evaluate_at_start: one evaluation at step 0, which changes nothing", "[fault-122]") {
  NamedRun run;
  run.config.data.order = GENERATE("epoch", "megatron");
  run.config.data.validation = run.folder.file("a");
  const LoopResult without = run.run("without");
  run.config.train.evaluate_at_start = true;
  run.config.train.stop_after = 2;
  run.run("with");
  run.config.train.stop_after = 0;
  const LoopResult with = run.run("with");
  CHECK(losses(with, "train") == losses(without, "train"));
  auto expected = losses(without, "validation");
  const auto found = losses(with, "validation");
  REQUIRE(found.size() == expected.size() + 1);
  CHECK(found.at(0) == Approx(std::log(50)).epsilon(0.1));  // the model knows nothing yet
  expected[0] = found.at(0);
  CHECK(found == expected);
  CHECK_THAT(with.log, Contains("after step 0"));
  // A run that ends before its first save begins again, with one line all the same.
  std::filesystem::remove_all(run.folder.file("with/checkpoints"));
  const LoopResult again = run.run("with");
  CHECK(std::count_if(again.metrics.begin(), again.metrics.end(), [](const auto& line) {
          return line.value("split", "") == "validation" && line.value("step", -1) == 0;
        }) == 1);
}
