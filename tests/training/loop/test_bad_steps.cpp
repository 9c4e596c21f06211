// A number that is none, on one rank in one micro-batch: all ranks skip the step, say where it came from, and continue
// as if the step had been skipped by decree. Too many such steps end the run.
#include <chrono>
#include <limits>
#include <map>
#include <thread>

#include "config/rules/resolve.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/require_error.h"
#include "training/datasets/datasets.h"
#include "training/loop/finished_run.h"
#include "training/loop/rank_files.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kPoisonedSteps = 5;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct PoisonedLayout {
  int tensor = 1, pipeline = 1, data = 1;
  bool overlap = false, sequence_parallel = false;
  const char* share = "none";
};

Config config_of(const ShardFolder& folder, const PoisonedLayout& layout, const char* directory) {
  Config config = tiny_config();
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = layout.data;
  config.parallel.overlap_gradients = layout.overlap;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  config.optimizer.share = layout.share;
  config.data.train = make_corpus(folder);
  config.train.steps = kPoisonedSteps;
  config.learning_rate.peak = 1e-3;
  config.checkpoint.every_steps = kPoisonedSteps;
  config.run.directory = folder.file(directory);
  return config;
}

/// Calls of a stage's norms in the forwards (backwards: as many) of one step.
int norms_a_step(const ProcessGrid& grid) {
  const int micro_batches = 8 / grid.data().size(), layers = 4 / grid.pipeline().size();
  return micro_batches * (2 * layers + (grid.last_stage() ? 1 : 0));
}

/// Puts `value` after one norm of step 3 (call `which` of the step), and of as many steps after it as asked for.
template <class Hook, class Output>
void poison_step_3(Hook& hook, Output output, const ProcessGrid& grid, float value, int which, int times) {
  const int step = norms_a_step(grid);
  hook = [=, calls = 0](const auto& args) mutable {
    const int call = calls++ - 2 * step - which;
    if (call >= 0 && call % step == 0 && call / step < times) (args.*output).template as<float>()[3] = value;
  };
}

void poison_forward(InjectedOps& ops, const ProcessGrid& grid, float value) {
  poison_step_3(ops.after_norm, &LayerNormForwardArgs::y, grid, value, norms_a_step(grid) / 2, 1);
}

void poison_backward(InjectedOps& ops, const ProcessGrid& grid, float value, int times = 1, int which = 7) {
  poison_step_3(ops.after_norm_backward, &LayerNormBackwardArgs::dx, grid, value, which, times);
}

/// Every digit of the steps but the third, whose loss and norm depend on who was poisoned.
std::vector<std::string> other_steps(const LoopResult& result) {
  std::vector<std::string> lines;
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") == "train" && line.at("step") == 3) continue;
    lines.push_back(fmt::format("{} {} {} {} {}", line.at("step").dump(), line.at("loss").dump(),
                                line.value("grad_norm", 0.0), line.value("learning_rate", 0.0),
                                line.value("skipped", 0)));
  }
  return lines;
}

const nlohmann::json& step(const LoopResult& result, int number) {
  return result.metrics.at(static_cast<std::size_t>(number) - 1);
}

}  // namespace

TEST_CASE("bad steps: NaN on one rank makes every rank skip and names the rank", "[fault-34]") {
  struct Case {
    PoisonedLayout layout;
    int rank;
    const char* named;  // as the backward spreads it: the whole replica of that data rank
  };
  const Case cases[] = {
      {{}, 0, "from embedding.word.weight on rank 0 ("},
      {{.data = 4}, 2, "from embedding.word.weight on rank 2 ("},
      {{.data = 2, .overlap = true}, 1, "from embedding.word.weight on rank 1 ("},
      {{.tensor = 2, .pipeline = 2, .data = 2}, 7, "from embedding.word.weight on rank 2 ("},
      {{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true}, 2, "from embedding.word.weight on rank 2 ("},
      {{.data = 4, .share = "state"}, 3, "from layers.2.mlp.down.weight on rank 3 ("},  // it has sums from there on
      {{.tensor = 2, .pipeline = 2, .data = 2, .overlap = true, .sequence_parallel = true, .share = "state"},
       5,
       "from embedding.word.weight on rank 0 ("},
      {{.data = 4, .share = "gradients"}, 3, "from embedding.word.weight on rank 3 ("},  // it has a part of each bucket
      {{.data = 4, .share = "weights"}, 3, "from embedding.word.weight on rank 3 ("},
      {{.pipeline = 4, .data = 2}, 4, "from embedding.word.weight on rank 0 ("},
  };
  for (const Case& c : cases) {
    CAPTURE(c.layout.tensor, c.layout.pipeline, c.layout.data, c.rank);
    const ShardFolder folder;
    const LoopResult one = run_loop(config_of(folder, c.layout, "one"), [&](InjectedOps& ops, const ProcessGrid& grid) {
      if (grid.world().rank() == c.rank) poison_forward(ops, grid, std::nanf(""));
    });
    const LoopResult all = run_loop(config_of(folder, c.layout, "all"), [](InjectedOps& ops, const ProcessGrid& grid) {
      poison_backward(ops, grid, kInfinity);
    });
    for (const std::string& told : one.told) CHECK(told.empty());
    CHECK(step(one, 3).at("loss").is_null());
    CHECK(step(one, 3).at("grad_norm").is_null());
    CHECK(step(one, 3).at("skipped") == 1);
    CHECK(step(one, 4).at("skipped") == 0);
    CHECK(step(one, 4).at("grad_norm").is_number());
    CHECK(other_steps(one) == other_steps(all));
    const std::string last = fmt::format("/checkpoints/step_{:08}", kPoisonedSteps);
    CHECK(rank_files(folder.file("one") + last) == rank_files(folder.file("all") + last));

    CHECK_THAT(one.log, Contains("warning: step 3 is skipped: the loss of"));
    CHECK_THAT(one.log, Contains("gradients are not finite " + std::string(c.named)));
    if (c.layout.data > 1) {
      const int data_rank =
          coordinates_of(c.rank, {.tensor = c.layout.tensor, .data = c.layout.data, .pipeline = c.layout.pipeline})
              .data;
      CHECK_THAT(one.log, Contains(fmt::format("the loss of data rank {}'s samples is not finite", data_rank)));
    }
    CHECK_THAT(one.log, Contains("the step repeated gave finite numbers: suspect memory or processor there"));
    CHECK_THAT(one.log, Contains("skipped: 1 of 5 steps"));
    CHECK_THAT(all.log, Contains("step 3 is skipped: the loss is finite, gradients are not finite"));
  }
}

TEST_CASE("bad steps: a bad gradient that another tensor rank counts is skipped", "[fault-34]") {
  // After the last norm of the backward comes the embedding, whose position table every tensor rank has whole: nothing
  // that tensor ranks exchange carries the number to another one.
  for (const bool distributed : {false, true}) {
    CAPTURE(distributed);
    const ShardFolder folder;
    Config config =
        config_of(folder, {.tensor = 2, .data = distributed ? 2 : 1, .share = distributed ? "state" : "none"}, "run");
    config.train.check_replicas_every = 0;
    const LoopResult result = run_loop(config, [&](InjectedOps& ops, const ProcessGrid& grid) {
      const int micro_batches = 8 / grid.data().size(), norms_a_pass = 9;
      if (grid.world().rank() != 1) return;
      poison_backward(ops, grid, std::nanf(""), 1, (micro_batches - 1) * norms_a_pass + norms_a_pass - 1);
    });
    for (const std::string& told : result.told) CHECK(told.empty());
    CHECK(step(result, 3).at("skipped") == 1);
    CHECK(step(result, 4).at("skipped") == 0);
    CHECK(step(result, 4).at("loss").is_number());
    CHECK(step(result, 5).at("loss").is_number());
    CHECK_THAT(result.log, Contains("step 3 is skipped: the loss is finite, gradients are not finite") &&
                               Contains("embedding.position.weight on rank 1 ("));
  }
}

TEST_CASE("bad steps: a repeated bad backward is placed by data rank and layer", "[fault-34]") {
  const ShardFolder folder;
  // Rank 3 is stage 1 of data rank 1, with the final norm and layers 3 and 2. The third norm of a micro-batch's
  // backward is layer 3's first, whose input is layer 2's output.
  const PoisonedLayout layout{.pipeline = 2, .data = 2};
  const LoopResult result = run_loop(config_of(folder, layout, "run"), [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() == 3) poison_backward(ops, grid, kInfinity, 2, 10 + 2);  // and in its repetition
  });
  CHECK(result.told[0].empty());
  CHECK_THAT(result.log, Contains("step 3 is skipped: the loss is finite, gradients are not finite from "
                                  "embedding.word.weight on rank 1 ("));
  CHECK_THAT(result.log, Contains(" to layers.2.mlp.down.bias on rank 3 ("));
  CHECK_THAT(result.log, Contains("; the step repeated gave the same"));
  CHECK(step(result, 4).at("skipped") == 0);
}

TEST_CASE("a parameter that is damaged in memory is named itself", "[fault-34]") {
  const ShardFolder folder;
  Config config = config_of(folder, {.data = 2}, "run");
  config.train.max_skipped_steps = 2;
  config.train.check_replicas_every = 0;
  const LoopResult result = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() != 1) return;
    ops.after_norm = [calls = 0](const LayerNormForwardArgs& args) mutable {
      if (++calls == 3 * 9 + 3) const_cast<float*>(args.gamma.as<float>())[2] = std::nanf("");
    };
  });
  CHECK(result.told[0] == result.told[1]);
  CHECK_THAT(result.told[0], StartsWith("numerics: step 2: ") && Contains("for 2 steps in a row"));
  CHECK_THAT(result.told[0],
             Contains("parameters themselves are not finite, in layers.1.attention_norm.weight on rank 1 ("));
}

TEST_CASE("bad steps: skipped steps in a row end the run also across a resume", "[fault-34][fault-35]") {
  const ShardFolder folder;
  const PoisonedLayout layout{.data = 2};
  Config config = config_of(folder, layout, "run");
  config.train.steps = 12;
  config.train.max_skipped_steps = 4;
  config.checkpoint.every_steps = 5;
  const auto poison = [](int times) {
    return [times](InjectedOps& ops, const ProcessGrid& grid) {
      if (grid.world().rank() == 1) poison_backward(ops, grid, kInfinity, times);
    };
  };
  // Steps 3, 3 again, 4, 5, 6, 6 again.
  const LoopResult ended = run_loop(config, poison(1000));
  for (const std::string& told : ended.told) {
    CHECK_THAT(told, StartsWith("numerics: step 6: loss or gradient have not been finite for 4 steps in a row") &&
                         Contains("train.max_skipped_steps") && Contains("the step repeated gave the same") &&
                         Contains("on rank 1 (") && Contains("learning_rate.peak"));
  }
  CHECK_THAT(ended.log, Contains("step 5 is skipped: loss or gradient are not finite, 3 steps in a row now"));

  // Resumed from step 5 after three bad steps; as many more as make four in a row end it, one good resets.
  const LoopResult again = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    ops.after_norm_backward = [&grid](const LayerNormBackwardArgs& args) {
      if (grid.world().rank() == 0) args.dx.as<float>()[0] = kInfinity;
    };
  });
  CHECK_THAT(again.log, Contains("resuming from") && Contains("at step 5"));
  CHECK_THAT(again.told[0], StartsWith("numerics: step 6: "));
  const LoopResult healthy = run_loop(config);
  CHECK(healthy.told[0].empty());
  CHECK_THAT(healthy.log, Contains("skipped: 3 of 12 steps"));

  config.run.directory = folder.file("with a pause");
  const LoopResult paused = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() != 1) return;
    poison_backward(ops, grid, kInfinity, 4);  // step 3 twice, 4, 5; then the healthy 6
  });
  CHECK(paused.told[0].empty());
}

TEST_CASE("bad steps: saves among skipped steps keep the older checkpoints", "[fault-77]") {
  const ShardFolder folder;
  Config config = config_of(folder, {.data = 2}, "run");
  config.train.steps = 8;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 2;
  config.checkpoint.async = GENERATE(false, true);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const FoundCheckpoint& found : find_checkpoints(config.run.directory)) {
      all.push_back(std::filesystem::path(found.path).filename().string());
    }
    return all;
  };
  const LoopResult ended = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.world().rank() == 1) poison_backward(ops, grid, kInfinity, 1000);
  });
  for (const std::string& told : ended.told) {
    CHECK_THAT(told, StartsWith("numerics: the run has ended at step 8, but its last 6 steps have been skipped") &&
                         Contains("its parameters are those of step 2") &&
                         Contains("the newest checkpoint from before is " + config.run.directory +
                                  "/checkpoints/step_00000001: ") &&
                         Contains("checkpoint.load"));
  }
  CHECK(names() == std::vector<std::string>{"step_00000008", "step_00000002", "step_00000001"});

  // Trained further it learns again: then the older ones go.
  config.train.steps = 9;
  const LoopResult healthy = run_loop(config);
  CHECK(healthy.told[0].empty());
  CHECK_THAT(healthy.log, Contains("resuming from") && Contains("at step 8"));
  CHECK(names() == std::vector<std::string>{"step_00000009", "step_00000008"});
}

TEST_CASE("a finished run whose last steps were skipped is not called complete", "[fault-77]") {
  const ShardFolder folder;
  Config config = config_of(folder, {}, "run");
  const LoopResult ended = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    poison_step_3(ops.after_norm_backward, &LayerNormBackwardArgs::dx, grid, kInfinity, 7, 1000);
  });
  CHECK_THAT(ended.told[0], Contains("its last 3 steps have been skipped") &&
                                Contains("there is no checkpoint from before: start again with "));
  run_as_threads(1, [&](Communicator& world) {
    Datasets datasets(config);
    const DataFacts facts = datasets.facts();
    resolve(config, 1, &facts);
    std::vector<std::string> warnings;
    const auto own = open_newest_checkpoint(world, config.run.directory, warnings);
    REQUIRE(own);
    require_error(ErrorKind::numerics, {"its last 3 steps have been skipped"},
                  [&] { already_complete(world, config, own); });
  });
}

TEST_CASE("bad steps: an infinite last update ends the run with 5", "[fault-66]") {
  for (const bool never : {false, true}) {
    CAPTURE(never);
    const ShardFolder folder;
    Config config = config_of(folder, {.data = 2}, "run");
    config.train.steps = 1;
    config.checkpoint.every_steps = 0;
    config.checkpoint.never = never;
    config.learning_rate.peak = config.optimizer.weight_decay = 1e20;
    config.learning_rate.decay = "constant";
    const LoopResult ended = run_loop(config);
    for (const std::string& told : ended.told) {
      CHECK_THAT(told, StartsWith("numerics: ") && Contains("the parameters are no longer finite"));
    }
    CHECK(find_checkpoints(config.run.directory).empty());
  }
}

TEST_CASE("the time limit reckons with the closer look that a skipped step takes", "[fault-30]") {
  const ShardFolder folder;
  Config config = config_of(folder, {}, "run");
  config.run.max_minutes = 5.0 / 60;
  // The first step is skipped, and its repetition takes two of five seconds: another like that would not end in time.
  const LoopResult result = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    ops.after_norm_backward = [calls = 0, step = norms_a_step(grid)](const LayerNormBackwardArgs& args) mutable {
      if (calls++ == 0) args.dx.as<float>()[0] = kInfinity;
      if (calls == 2 * step) std::this_thread::sleep_for(std::chrono::seconds(2));
    };
  });
  CHECK(result.told[0].empty());
  CHECK_THAT(result.log, Contains("stopped on run.max_minutes") && Contains("after step 1;"));
}

TEST_CASE("loss scale: a power of two changes no bit and is in the metrics") {
  const ShardFolder folder;
  for (const PoisonedLayout& layout : {PoisonedLayout{}, PoisonedLayout{.tensor = 2, .pipeline = 2, .data = 2}}) {
    Config config = config_of(folder, layout, layout.data == 1 ? "one" : "cube");
    const LoopResult plain = run_loop(config);
    config.run.directory += " scaled";
    config.precision.loss_scale = 0x1p40;
    const LoopResult scaled = run_loop(config);
    CHECK(other_steps(scaled) == other_steps(plain));
    CHECK(step(scaled, 3).at("grad_norm") == step(plain, 3).at("grad_norm"));
    CHECK(step(plain, 3).at("loss_scale") == 1);
    CHECK(step(scaled, 3).at("loss_scale") == 0x1p40);
    CHECK_THAT(scaled.log, Contains("  loss scale 1099511627776\n"));
    CHECK_THAT(plain.log, !Contains("loss scale"));
    const std::string last = fmt::format("/checkpoints/step_{:08}", kPoisonedSteps);
    CHECK(rank_files(config.run.directory + last) ==
          rank_files(config.run.directory.substr(0, config.run.directory.size() - 7) + last));
  }
}

TEST_CASE("a validation loss that is not finite is a warning") {
  const ShardFolder folder;
  Config config = config_of(folder, {}, "run");
  config.train.evaluate_every = 2;
  config.train.evaluate_steps = 1;
  const LoopResult result = run_loop(config, [](InjectedOps& ops, const ProcessGrid& grid) {
    ops.after_norm = [calls = 0, first = 2 * norms_a_step(grid)](const LayerNormForwardArgs& args) mutable {
      if (calls++ == first + 3) args.y.as<float>()[0] = std::nanf("");
    };
  });
  CHECK(result.told[0].empty());
  CHECK_THAT(result.log, Contains("warning: the validation loss after step 2 is not finite") &&
                             !Contains("loss after step 4 is not finite"));
  REQUIRE(result.metrics.at(2).at("kind") == "eval");
  CHECK(result.metrics.at(2).at("loss").is_null());
  CHECK(result.metrics.at(2).at("perplexity").is_null());
}
