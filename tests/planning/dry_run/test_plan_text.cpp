// The plan of a run in words, whose numbers are worked out by hand here.
#include "planning/dry_run/plan_text.h"

#include <sstream>

#include "base/text/byte_text.h"
#include "config/rules/resolve.h"
#include "planning/dry_run/recompute_table.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/tiny_training.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// 64 samples per step for 25 steps.
Config planned_run() {
  Config config = tiny_config();
  config.data.train = "corpus";
  config.train.steps = 25;
  config.train.global_batch_size = 64;
  config.checkpoint.every_steps = 10;
  config.parallel.data = 0;
  config.run.device = "cpu";
  return config;
}

Config resolved(Config config, int ranks) {
  const DataFacts data{.vocab_size = 50, .train_samples = 40};
  config.run = choose_planned_device(config.run);
  resolve(config, ranks, &data);
  return config;
}

std::string plan_of(const Config& config, int ranks) {
  const Config whole = resolved(config, ranks);
  return describe_plan(whole, plan_stages(whole, grid_shape(whole)));
}

/// The rest of the line that starts with `label`, and of the lines that continue it; words separated by one space.
std::string line(const std::string& plan, const std::string& label) {
  std::istringstream lines(plan);
  std::string result;
  bool inside = false;
  for (std::string text; std::getline(lines, text);) {
    if (text.starts_with("          ") && inside) {
      result += text;
      continue;
    }
    inside = text.starts_with(label + " ");
    if (inside) result = text.substr(label.size());
  }
  std::istringstream words(result);
  std::string joined;
  for (std::string word; words >> word;) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

/// Numbers of the stage's row in the table of memory.
std::string memory_of(const std::string& plan, int stage) {
  return line(plan, fmt::format("{:>7}", stage));
}

// A layer: two norms, query, key, value and output, up and down. With word and position table and the last norm.
constexpr std::int64_t kLayer = 2 * 64 + 4 * (32 * 32 + 32) + (32 * 128 + 128) + (128 * 32 + 32);
constexpr std::int64_t kWords = 64 * 32, kPositions = 16 * 32, kNorm = 64;

}  // namespace

TEST_CASE("plan text: one rank's model, batch, length and saves") {
  const std::string plan = plan_of(planned_run(), 1);
  CHECK(line(plan, "grid") == "1 rank = tensor 1 x data 1 x pipeline 1 (tensor fastest)");
  CHECK(line(plan, "threads") == "1 per rank, 1 in all");
  CHECK(line(plan, "model") ==
        fmt::format("{} parameters; 4 layers, hidden 32, 4 heads, feed-forward 128, sequence 16, vocabulary 50 (padded "
                    "to 64)",
                    4 * kLayer + kWords + kPositions + kNorm));
  CHECK(line(plan, "batch") == "64 samples = 64 micro-batches x 1 sample x 1 data rank; 1024 tokens per step");
  CHECK(line(plan, "length") == "25 steps = 1600 samples = 25600 tokens");
  CHECK(line(plan, "saves") == "every 10 steps, every 30 minutes, at the end");
  CHECK_THAT(line(plan, "failure"),
             StartsWith("costs at most 10 steps or 30 minutes of work (whichever is less), and the step"));
  CHECK(line(plan, "schedule") == "no pipeline, no bubble");
  CHECK(line(plan, "layers") == "4 by stage");
  CHECK(line(plan, "per rank") == fmt::format("{} parameters", 4 * kLayer + kWords + kPositions + kNorm));
  CHECK_THAT(line(plan, "step"), Contains("sends at most 0 B in passes and 0 B between copies"));
  CHECK(line(plan, "note") == "");
  CHECK(line(plan, "recompute") == "");
}

TEST_CASE("plan: a stage has the memory of its fullest copies") {
  Config config = planned_run();
  config.train.global_batch_size = 6;
  config.optimizer.name = "muon";
  config.checkpoint.async = true;
  config.optimizer.share = "state";
  const Config whole = resolved(config, 3);
  const MemoryPlan first = plan_memory(whole, grid_shape(whole), {});
  const MemoryPlan stage = plan_stages(whole, grid_shape(whole)).at(0);
  CHECK(stage.snapshot > first.snapshot);
  CHECK((static_cast<const MemoryUse&>(stage) == first.fullest));
}

TEST_CASE("plan text: the momentum of rules that have one, given or their own") {
  Config config = planned_run();
  CHECK(line(plan_of(config, 1), "optimizer") == "");
  config.optimizer.name = "muon";
  CHECK(line(plan_of(config, 1), "optimizer") == "muon, momentum 0.95");
  config.optimizer.momentum = 0.8;
  CHECK(line(plan_of(config, 1), "optimizer") == "muon, momentum 0.8");
}

TEST_CASE("plan text: memory is 4 bytes per weight and gradient, 8 of moments") {
  // 53440 parameters: 208.75 KiB of weights, with the gaps of alignment still less than 209.5.
  CHECK_THAT(memory_of(plan_of(planned_run(), 1), 0), StartsWith("209 KiB 209 KiB 418 KiB "));
  Config half = planned_run();
  half.precision.compute = "bf16";  // 2 bytes of value, 4 of gradient, 12 of master and moments
  CHECK_THAT(memory_of(plan_of(half, 1), 0), StartsWith("104 KiB 209 KiB 626 KiB "));
}

TEST_CASE("plan text: offloaded states have a line of their own") {
  CHECK(line(plan_of(planned_run(), 1), "offload") == "");
  Config config = planned_run();
  config.optimizer.offload = "file";
  config.optimizer.offload_folder = "/somewhere";
  const MemoryPlan whole = plan_stages(resolved(config, 1), {}).at(0);
  CHECK(whole.file == 2 * whole.weights);
  const std::string plan = plan_of(config, 1);
  CHECK(line(plan, "offload") ==
        fmt::format(
            "at most {} of the optimizer's state per rank in a file in /somewhere, of which each update reads and "
            "writes all",
            format_bytes(static_cast<double>(whole.file))));
  CHECK_THAT(memory_of(plan, 0), StartsWith("209 KiB 209 KiB ") && Contains(" B "));
  CHECK_THAT(memory_of(plan, 0), !Contains("418 KiB"));
  config.optimizer.offload = "host";
  config.optimizer.offload_folder = "";
  config.run.device = "cuda";
  CHECK_THAT(line(plan_of(config, 1), "offload"),
             EndsWith("in the host's memory, which each update reads and writes there"));
}

TEST_CASE("plan text: parameters by stage, a tied table on the first and the last") {
  Config config = planned_run();
  config.parallel.pipeline = 4;
  const std::string plan = plan_of(config, 4);
  CHECK(line(plan, "grid") == "4 ranks = tensor 1 x data 1 x pipeline 4 (tensor fastest)");
  CHECK(line(plan, "layers") == "1 1 1 1 by stage");
  CHECK(line(plan, "per rank") == fmt::format("{} {} {} {} parameters, by stage", kLayer + kWords + kPositions, kLayer,
                                              kLayer, kLayer + kNorm + kWords));
  CHECK(line(plan, "model").starts_with(fmt::format("{} parameters", 4 * kLayer + kWords + kPositions + kNorm)));
  for (int stage = 0; stage < 4; ++stage) CHECK(memory_of(plan, stage) != "");
  CHECK(memory_of(plan, 4) == "");
}

TEST_CASE("plan text: the bubble is (p - 1) / (m v + p - 1)") {
  Config config = planned_run();
  config.parallel.pipeline = 4;
  config.train.global_batch_size = 9;  // 3 / 12
  CHECK(line(plan_of(config, 4), "schedule") ==
        "1f1b, bubble 25.0 % of the time if all stages are equally fast; 25.0 % by the formula");
  CHECK(bubble_fraction(resolved(config, 4)) == Approx(0.25));
  config.parallel.pipeline = 2;
  config.parallel.virtual_stages = 2;
  config.parallel.schedule = "interleaved";
  config.train.global_batch_size = 64;
  config.train.batch_ramp_up = {16, 16, 64};  // 8 and 32 micro-batches on each of two data ranks: 1 / 17, 1 / 65
  const std::string plan = plan_of(config, 4);
  CHECK(line(plan, "schedule") ==
        "interleaved over 2 chunks a stage, bubble 1.5 % (in the first step 5.9 %) of the time if all stages are "
        "equally fast; 1.5 % by the formula");
  CHECK(line(plan, "layers") == "1 1 1 1 by chunk in the order of the model: stage 0's first, stage 1's first, ...");
}

TEST_CASE("plan text: a batch that grows lengthens the run in samples") {
  Config config = planned_run();
  config.train.batch_ramp_up = {16, 16, 64};  // 16 for 2 steps up to 32 samples, 32 for one up to 64, then 64
  const std::string plan = plan_of(config, 1);
  CHECK(line(plan, "ramp-up") == "from 16 samples by 16 to 64, in 3 steps of 64 samples together");
  CHECK(line(plan, "length") == fmt::format("25 steps = {} samples = {} tokens", 64 + 22 * 64, (64 + 22 * 64) * 16));
  CHECK_THAT(line(plan, "step"), Contains("at its largest"));
}

TEST_CASE("plan text: sequences that grow") {
  Config config = planned_run();
  config.train.curriculum.schedule = "fixed_linear";
  config.train.curriculum.start = 4;
  config.train.curriculum.multiple = 4;
  config.train.curriculum.steps = 10;
  const std::string plan = plan_of(config, 1);
  CHECK(line(plan, "sequence") == "fixed_linear: 4 tokens in the first step, 16 from step 10 on");
}

TEST_CASE("plan text: what a run keeps and when it ends early") {
  Config config = planned_run();
  CheckpointConfig& checkpoint = config.checkpoint;
  const auto says = [&](const std::string& label) { return line(plan_of(config, 1), label); };
  checkpoint.every_steps = 0;
  CHECK(says("saves") == "every 30 minutes, at the end");
  CHECK(says("failure") == "costs at most 30 minutes of work, and the step under way");
  checkpoint.async = true;
  CHECK_THAT(says("failure"), Contains("; a checkpoint counts when it is written"));
  checkpoint.async = false;
  checkpoint.every_minutes = 0;
  CHECK(says("saves") == "only at the end");
  CHECK(says("failure") == "costs all work: nothing is saved before the end but by a stop");
  checkpoint.every_steps = 1;
  CHECK(says("failure") == "costs at most 1 step of work, and the step under way");
  checkpoint.keep_best = true;
  config.train.evaluate_every = 5;
  CHECK(says("saves") == "every step, after an evaluation with the lowest loss so far, at the end");
  checkpoint = {};
  checkpoint.never = true;
  CHECK_THAT(says("saves"), Contains("never: the trained model is NOT kept"));
  CHECK(says("failure") == "costs all work: nothing is saved but by a stop");
  config.train.stop_after = 7;
  CHECK_THAT(line(plan_of(config, 1), "length"), Contains("tokens; ends early after step 7 (train.stop_after)"));
}

TEST_CASE("plan text: options without effect are noted") {
  Config config = planned_run();
  config.parallel.sequence_parallel = config.parallel.overlap_gradients = true;
  config.optimizer.share = "state";
  const std::string plan = plan_of(config, 1);
  CHECK_THAT(plan, Contains("note      parallel.sequence_parallel = true does nothing with tensor 1\n") &&
                       Contains("note      parallel.overlap_gradients = true does nothing with data 1\n") &&
                       Contains("note      optimizer.share = \"state\" does nothing with data 1\n"));
  config.parallel.tensor = 2;
  const std::string on_four = plan_of(config, 4);
  CHECK(line(on_four, "note") == "");
  CHECK(line(on_four, "grid") == "4 ranks = tensor 2 x data 2 x pipeline 1 (tensor fastest), sequence parallel");
}

TEST_CASE("plan text: what divided gradients send is said") {
  Config config = planned_run();
  config.optimizer.share = "gradients";
  CHECK(line(plan_of(config, 1), "share") == "");
  CHECK_THAT(plan_of(config, 1), Contains("note      optimizer.share = \"gradients\" does nothing with data 1\n"));
  CHECK_THAT(line(plan_of(config, 2), "share"), Contains("gradients of at most 2 layers at a time are whole"));
  config.optimizer.share = "weights";
  CHECK_THAT(line(plan_of(config, 2), "share"), Contains("weights and gradients of at most 2 layers at a time"));
}

TEST_CASE("plan text: data ranks that share experts out") {
  Config config = planned_run();
  config.parallel.tensor = 2;
  config = resolved(config, 8);
  config.parallel.expert = 2;
  const GridShape shape = grid_shape(config);
  CHECK(line(describe_plan(config, plan_stages(config, shape)), "grid") ==
        "8 ranks = tensor 2 x data 4 x pipeline 1 (tensor fastest), experts shared out over 2 data ranks");
}

TEST_CASE("plan text: recomputed layers and what they cost") {
  Config config = planned_run();
  config.recompute = {"full", 0};
  // Per token and pass: matrices, and scores and values for 8.5 keys on average. A repeated forward needs no last
  // matrix.
  const double down = 2.0 * 32 * 128, layer = 2.0 * 4 * 32 * 32 + 2 * down + 2 * 2 * 32 * 8.5, head = 2.0 * 64 * 32;
  CHECK(line(plan_of(config, 1), "recompute") ==
        fmt::format("4 of 4 layers keep their input alone: {:.1f} % more operations",
                    100 * 4 * (layer - down) / (3 * (4 * layer + head))));
  config.recompute.layers = 1;
  config.parallel.pipeline = 2;
  CHECK_THAT(line(plan_of(config, 2), "recompute"), StartsWith("2 of 4 layers keep their input alone: "));
  config.recompute = {"selective", 0};
  CHECK(line(plan_of(config, 2), "recompute") == "selective: layers do not keep norms, activations");
}

TEST_CASE("plan text: what each recomputed part saves and costs") {
  Config config = planned_run();
  CHECK(describe_recompute_parts(resolved(config, 1)) == "");
  config.recompute.mode = "full";
  CHECK(describe_recompute_parts(resolved(config, 1)) == "");
  config.recompute = {.mode = "selective", .parts = {RecomputePart::feed_forward}};
  const std::string text = describe_recompute_parts(resolved(config, 1));
  // A norm's output is 2 KiB per micro-batch, and a function's 8; of 64 micro-batches with 4 layers.
  CHECK_THAT(line(text, "  norms"), StartsWith("- 16.0 KiB ") && EndsWith("2.0 MiB more read and written"));
  CHECK_THAT(line(text, "  activations"), StartsWith("- 32.0 KiB ") && EndsWith("4.0 MiB more read and written"));
  CHECK_THAT(line(text, "  feed_forward"), StartsWith("yes 64.0 KiB ") && Contains("% more operations"));
  CHECK(line(text, "  together") == line(text, "  feed_forward"));
}

TEST_CASE("plan text: slots in flight by stage, those that hold more named") {
  Config config = planned_run();
  config.parallel.pipeline = 4;
  const Config whole = resolved(config, 4);
  const std::vector<MemoryPlan> stages = plan_stages(whole, grid_shape(whole));
  const std::string slots = line(describe_plan(whole, stages), "  activations by micro-batch in flight:");
  // 1F1B: stage i keeps 4 - i forwards.
  CHECK_THAT(slots, StartsWith("stage 0: 4 x ") && Contains("; stage 1: 3 x ") && Contains("; stage 2: 2 x ") &&
                        Contains("; stage 3: 1 x "));
}

TEST_CASE("plan text: plans too large to play are refused with what to change") {
  Config config = planned_run();
  config.train.global_batch_size = 1 << 20;
  const Config whole = resolved(config, 1);
  require_error(
      ErrorKind::configuration,
      {"4 layers x 1048576 micro-batches", "are 4194304 passes", "more than 1048576", "train.micro_batch_size"},
      [&] { plan_stages(whole, grid_shape(whole)); });
}
