// Half precision lives by its loss scale: from 2^32 it comes down until gradients fit, and then training goes on.
#include <catch2/catch.hpp>
#include <map>

#include "train/loop_on_threads.h"
#include "train/trainer.h"

using namespace megatron;
using namespace megatron::test;
using Catch::Matchers::Contains;

namespace {

Config fp16_config(const ShardFolder& folder, const std::string& directory) {
  Config config = tiny_config();
  config.precision.compute = "fp16";
  config.data.train = make_corpus(folder);
  config.train.steps = 40;
  config.learning_rate.peak = 1e-3;
  config.run.directory = folder.file(directory);
  return config;
}

/// Whether the scales in the metrics are those that the scaler has for the steps that were skipped.
bool scales_follow(const LoopResult& result, LossScaler scaler) {
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") != "train") continue;
    if (line.at("loss_scale") != scaler.scale()) return false;
    scaler.update(line.at("skipped") == 1);
  }
  return true;
}

std::map<std::string, std::string> rank_files(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank_")) files[name] = contents_of(entry.path().string());
  }
  return files;
}

}  // namespace

TEST_CASE("an overflow storm in fp16: the scale comes down as it must, and the run goes on", "[fault-35]") {
  const ShardFolder folder;
  for (const bool cube : {false, true}) {
    Config config = fp16_config(folder, cube ? "cube" : "one");
    if (cube) config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
    config.precision.loss_scale_window = 6;
    config.train.max_skipped_steps = 1;  // what the search skips does not count
    const LoopResult result = run_loop(config);
    REQUIRE(result.told[0].empty());
    CHECK_THAT(result.log,
               Contains("step 1 is skipped: the gradient overflows at a loss scale of 4294967296; lowered if "
                        "it does again") &&
                   Contains("step 2 is skipped: the gradient overflows at a loss scale of 4294967296; "
                            "lowered to 2147483648") &&
                   Contains("step 3 is skipped: the gradient overflows at a loss scale of 2147483648; "
                            "lowered to 1073741824"));
    CHECK_THAT(result.log, !Contains("warning: step"));
    CHECK(scales_follow(result, LossScaler({.constant = 0, .window = 6})));
    int skipped = 0, grown = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      const nlohmann::json& line = result.metrics.at(i);
      skipped += line.at("skipped").get<int>();
      grown += i > 0 && line.at("loss_scale") > result.metrics[i - 1].at("loss_scale") ? 1 : 0;
      CHECK(line.at("loss").is_number());
      CHECK(line.at("grad_norm").is_null() == (line.at("skipped") == 1));
    }
    CHECK(skipped >= 6);
    CHECK(skipped <= 20);
    CHECK(grown >= 2);
    // Trained on what 2^-24 and 65504 can hold: what fp32 makes of it is near.
    config.precision = {};
    config.precision.compute = "fp32";
    config.run.directory += " fp32";
    const LoopResult reference = run_loop(config);
    const double loss = reference.metrics.at(0).at("loss");
    CHECK(result.metrics.at(0).at("loss").get<double>() == Approx(loss).epsilon(5e-3));
  }
}

TEST_CASE("an overflow storm in fp16 ends with 5 when the scale has nowhere to go", "[fault-35]") {
  const ShardFolder folder;
  Config config = fp16_config(folder, "floor");
  config.precision.minimum_loss_scale = 0x1p30;
  config.train.max_skipped_steps = 3;
  // 1 and 2 at 2^32, 3 at 2^31, and three at the floor.
  const LoopResult floor = run_loop(config);
  CHECK_THAT(floor.told[0],
             Catch::StartsWith("numerics: step 6: loss or gradient have not been finite for 3 steps in a "
                               "row (train.max_skipped_steps) at a loss scale of 1073741824") &&
                 Contains("gradients are not finite from ") && Contains("gave the same"));
  CHECK_THAT(floor.log, Contains("warning: step 4 is skipped: the loss is finite, gradients are not finite"));

  config = fp16_config(folder, "constant");
  config.precision.loss_scale = 0x1p31;
  config.train.max_skipped_steps = 2;
  const LoopResult constant = run_loop(config);
  CHECK_THAT(constant.told[0], Catch::StartsWith("numerics: step 2: ") && Contains("at a loss scale of 2147483648"));
  config.precision.loss_scale = 128;
  config.run.directory = folder.file("fitting");
  config.train.steps = 5;
  const LoopResult fitting = run_loop(config);
  CHECK(fitting.told[0].empty());
  CHECK_THAT(fitting.log, !Contains("skipped"));
  config.precision = {};
  config.run.directory = folder.file("fp32");
  const LoopResult reference = run_loop(config);
  for (std::size_t i = 0; i < 5; ++i) {  // the norm is the unscaled gradient's
    CHECK(fitting.metrics.at(i).at("loss").get<double>() ==
          Approx(reference.metrics.at(i).at("loss").get<double>()).epsilon(5e-3));
    CHECK(fitting.metrics.at(i).at("grad_norm").get<double>() ==
          Approx(reference.metrics.at(i).at("grad_norm").get<double>()).epsilon(5e-2));
  }
}

TEST_CASE("a run in fp16 is resumed in the middle of a window of its loss scale, bit by bit", "[fault-35]") {
  const ShardFolder folder;
  Config config = fp16_config(folder, "straight");
  config.parallel.tensor = config.parallel.data = 2;
  config.optimizer.distributed = true;
  config.precision.initial_loss_scale = 0x1p26;
  config.precision.loss_scale_window = 4;
  config.train.steps = 16;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 0;
  const LoopResult straight = run_loop(config);
  REQUIRE(straight.told[0].empty());
  const auto at = [&](const char* run, int step) {
    return folder.file(fmt::format("{}/checkpoints/step_{:08}", run, step));
  };
  for (const int step : {1, 5, 8, 9, 10, 11}) {
    CAPTURE(step);
    config.run.directory = folder.file("resumed");
    config.checkpoint.load = at("straight", step);
    const LoopResult resumed = run_loop(config);
    REQUIRE(resumed.told[0].empty());
    for (std::size_t i = 0; i < resumed.metrics.size() && i < static_cast<std::size_t>(16 - step); ++i) {
      const nlohmann::json &a = resumed.metrics[i], &b = straight.metrics.at(i + static_cast<std::size_t>(step));
      for (const char* field : {"step", "loss", "grad_norm", "loss_scale", "skipped"})
        CHECK(a.at(field) == b.at(field));
    }
    CHECK(rank_files(at("resumed", 16)) == rank_files(at("straight", 16)));
    std::filesystem::remove_all(folder.file("resumed"));
  }
}
