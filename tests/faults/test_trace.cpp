// run.trace_steps in whole programs: trace.json of all ranks, what it costs in memory, and what is refused.
#include "faults/checks.h"
#include "support/catch.h"
#include "support/trace_check.h"

using megatron::test::CheckedTrace;
using megatron::test::TraceCheck;

namespace {

CheckedTrace trace_of(const std::string& run) {
  return TraceCheck::of(contents_of(run + "/trace.json"));
}

}  // namespace

TEST_CASE("trace: all ranks of a pipeline and the same numbers as without it") {
  const TemporaryFolder folder;
  const Layout layout{1, 2, 2};
  const std::string run = folder.file("run"), plain = folder.file("plain");
  const Settings settings = {"train.micro_batch_size=1", "train.steps=4", "learning_rate.decay_steps=4",
                             "train.evaluate_every=3"};
  Settings traced = settings;
  traced.emplace_back("run.trace_steps=[2, 4]");
  const Finished finished = train(layout, run, traced);
  INFO(finished.out);
  CHECK(mentions(finished.out, "trace of steps 2 to 4: " + run + "/trace.json, clocks of ranks to within"));
  CHECK(mentions(finished.out, "for the events of traced steps (run.trace_events)"));
  CHECK(mentions(finished.out, "as predicted, to the byte"));
  train(layout, plain, settings);
  CHECK(numbers(run) == numbers(plain));
  CHECK(same_rank_files(run, plain, 4));
  CHECK_FALSE(std::filesystem::exists(plain + "/trace.json"));

  const CheckedTrace trace = trace_of(run);
  constexpr std::int64_t kSteps = 3, kMicroBatches = 4;  // batches of 8 on two data ranks
  REQUIRE(trace.processes.size() == 4);
  CHECK(trace.processes.at(2) == "rank 2: tensor 0, data 0, pipeline 1");
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(trace.count(rank, "step") == kSteps);
    CHECK(trace.count(rank, "forward") == kSteps * kMicroBatches);
    CHECK(trace.count(rank, "backward") == kSteps * kMicroBatches);
    CHECK(trace.count(rank, "optimizer") == kSteps);
    CHECK(trace.within(rank, "attention_backward", "layer"));
    CHECK(trace.within(rank, "attention_backward", "backward"));
    CHECK(trace.count(rank, "evaluation") > 0);  // after step 3
  }
  // Between two pairs of ranks: two messages for every micro-batch of a step, and one in the evaluation.
  const auto arrows = static_cast<std::int64_t>(trace.arrows.size());
  CHECK(arrows > 2 * 2 * kSteps * kMicroBatches);
  for (const auto& [from, to] : trace.arrows) CHECK(std::abs(from - to) == 2);
}

TEST_CASE("trace: a run that is stopped within the steps writes those that it has") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train({1, 2, 1}, run, {"run.trace_steps=[2, 6]", "train.stop_after=3"});
  CHECK(trace_of(run).facts.at("steps") == nlohmann::json{2, 3});
  train({1, 2, 1}, run, {"run.trace_steps=[2, 6]"});
  CHECK(trace_of(run).facts.at("steps") == nlohmann::json{4, 6});
}

TEST_CASE("trace: steps that are not of the run are refused") {
  const TemporaryFolder folder;
  struct Row {
    std::string value;
    std::vector<std::string> words;
  };
  for (const Row& row :
       {Row{"[3, 2]", {"run.trace_steps = [3, 2]", "before the first"}},
        Row{"[0, 2]", {"run.trace_steps", "out of range"}}, Row{"[-1, 2]", {"run.trace_steps", "out of range"}},
        Row{"[7, 9]", {"run.trace_steps = [7, 9]", "the run ends with step 8"}}, Row{"[2]", {"[first, last]"}},
        Row{"2", {"run.trace_steps", "expected"}}}) {
    CAPTURE(row.value);
    const std::string run = folder.file("run");
    require_refused(run_command(training(kOneRank, run, {"run.trace_steps=" + row.value}), 60), 2, row.words);
    CHECK_FALSE(std::filesystem::exists(run));
  }
  // Where the length is in samples, it is known after the data has been read.
  const std::string run = folder.file("run");
  require_refused(
      run_command(
          training(kOneRank, run, {"run.trace_steps=[7, 9]", "train.samples=64", "learning_rate.warmup_steps=0"}), 60),
      2, {"run.trace_steps = [7, 9]: the run ends with step 8"});
}
