// Half precision lives by its loss scale: from 2^32 it comes down until gradients fit, and then training continues.
#include <cmath>
#include <map>

#include "backend/ops/backends.h"
#include "base/core/half.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/loop_on_threads.h"
#include "training/loop/rank_files.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

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

}  // namespace

TEST_CASE("fp16: the scale comes down in an overflow storm and the run continues", "[fault-35]") {
  const ShardFolder folder;
  for (const bool cube : {false, true}) {
    Config config = fp16_config(folder, cube ? "cube" : "one");
    if (cube) config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 2;
    config.precision.loss_scale_window = 6;
    config.train.max_skipped_steps = 4;  // less than the search takes: a closer look lets it continue
    const LoopResult result = run_loop(config);
    REQUIRE(result.told[0].empty());
    CHECK_THAT(
        result.log,
        Contains("step 1 is skipped: the gradient overflows at a loss scale of 4294967296; lowered if "
                 "it does again") &&
            Contains("step 2 is skipped: the gradient overflows at a loss scale of 4294967296; "
                     "lowered to 2147483648") &&
            Contains("step 3 is skipped: the gradient overflows at a loss scale of 2147483648; "
                     "lowered to 1073741824") &&
            Contains("step 4 is skipped: the gradient overflows at a loss scale of 1073741824, though not at the "
                     "smallest; lowered to 536870912"));
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
  config.train.max_skipped_steps = 6;
  // 1 and 2 at 2^32, 3 at 2^31, and three at the floor.
  const LoopResult floor = run_loop(config);
  CHECK_THAT(floor.told[0], StartsWith("numerics: step 6: loss or gradient have not been finite for 6 steps in a "
                                       "row (train.max_skipped_steps) at a loss scale of 1073741824") &&
                                Contains("gradients are not finite from ") &&
                                Contains("the step repeated gave the same"));
  CHECK_THAT(floor.log, Contains("warning: step 4 is skipped: the loss is finite, gradients are not finite") &&
                            Contains("warning: step 5 is skipped: loss or gradient are not finite, 5 steps in a row"));

  // Still on its way down, but the floor would be no better.
  config.train.max_skipped_steps = 3;
  config.run.directory = folder.file("above the floor");
  CHECK_THAT(run_loop(config).told[0], StartsWith("numerics: step 3: ") && Contains("at a loss scale of 2147483648") &&
                                           Contains("the step repeated at a loss scale of 1073741824 gave the same"));

  config = fp16_config(folder, "constant");
  config.precision.loss_scale = 0x1p31;
  config.train.max_skipped_steps = 2;
  const LoopResult constant = run_loop(config);
  CHECK_THAT(constant.told[0], StartsWith("numerics: step 2: ") && Contains("at a loss scale of 2147483648"));
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

TEST_CASE("fp16: a gradient bad at any scale soon ends the search and is named", "[fault-34][fault-35]") {
  const ShardFolder folder;
  Config config = fp16_config(folder, "run");
  config.parallel.data = 2;
  config.train.max_skipped_steps = 5;
  const LoopResult result = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() != 1) return;
    ops.after_norm_backward = [calls = 0](const LayerNormBackwardArgs& args) mutable {
      // The final norm, layer 3's two, and then layer 2's second.
      if (calls++ % 9 == 3) args.dx.as<Float16>()[0] = to_float16(std::nanf(""));
    };
  });
  CHECK(result.told[0] == result.told[1]);
  CHECK_THAT(result.told[0], StartsWith("numerics: step 5: ") && Contains("for 5 steps in a row") &&
                                 Contains(" to layers.2.attention.output.bias on rank 1 (") &&
                                 Contains("the step repeated at a loss scale of 1 gave the same"));
}

TEST_CASE("fp16: a bad loss on one tensor rank is no search for a scale", "[fault-34][fault-35]") {
  const ShardFolder folder;
  Config config = fp16_config(folder, "run");
  config.parallel.tensor = 2;
  config.train.steps = 4;
  config.precision.initial_loss_scale = 0x1p10;
  const LoopResult result = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() != 1) return;
    ops.after_loss = [calls = 0](const CrossEntropyLossArgs& args) mutable {  // eight micro-batches a step
      if (++calls == 8 + 3) *args.total.as<double>() = std::nan("");
    };
  });
  for (const std::string& told : result.told) CHECK(told.empty());
  CHECK(result.metrics.at(1).at("skipped") == 1);
  CHECK(result.metrics.at(2).at("skipped") == 0);
  CHECK_THAT(result.log, Contains("warning: step 2 is skipped: the loss of all samples is not finite") &&
                             Contains("the step repeated gave finite numbers"));
}

TEST_CASE("fp16: parameters too large for 16 bits are named as that", "[fault-34]") {
  for (const bool distributed : {false, true}) {
    CAPTURE(distributed);
    Config config = tiny_config();
    config.precision.compute = "fp16";
    config.parallel.pipeline = config.parallel.data = 2;
    config.optimizer.share = distributed ? "state" : "none";
    std::vector<std::string> told(4);
    run_as_threads(4, [&](Communicator& world) {
      const ProcessGrid grid(world, grid_shape(config));
      Backend backend = make_cpu_backend();
      Replica replica(config, grid, backend);
      TinyBatches batches(config, grid.data().rank());
      Timers timers;
      for (const TensorSlice& slice : replica.all_slices(false)) {
        if (slice.name == "layers.2.mlp.up.weight") slice.value.as<float>()[slice.count - 1] = -66000;
      }
      replica.optimizer().set_values_from_master();
      const std::span<const MicroBatch> micro_batches = batches.step(1);
      const StepSums sums = replica.forward_backward(micro_batches, 1, batches.loss(), timers);
      const Replica::Update update = replica.update(sums, {}, timers);
      CHECK_ON_RANK(update.skipped);
      CHECK_ON_RANK(update.bad_loss);
      told[static_cast<std::size_t>(world.rank())] =
          describe_non_finite_step(grid, replica.diagnose_non_finite_step(micro_batches, 1, batches.loss(), timers));
    });
    for (const std::string& text : told) {
      CHECK_THAT(text, StartsWith("parameters that are finite in fp32 are too large for 16-bit values, in "
                                  "layers.2.mlp.up.weight on rank 2 ("));
    }
  }
}

TEST_CASE("fp16: a run resumes within a loss scale's window bit by bit", "[fault-35]") {
  const ShardFolder folder;
  Config config = fp16_config(folder, "straight");
  config.parallel.tensor = config.parallel.data = 2;
  config.optimizer.share = "state";
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
