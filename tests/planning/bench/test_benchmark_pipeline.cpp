// Tests of pipelines that sleep: they sleep for all of the work, in its order. How late threads wake is the machine's
// business, so that rounds have no longest time.
#include "planning/bench/benchmark_pipeline.h"

#include <algorithm>

#include "support/catch.h"
#include "training/pipeline/simulate.h"

using namespace megatron;

namespace {

constexpr double kSeconds = 1e-3, kRounding = 1e-3;

/// A round of this work, all stages together, that takes at least `makespan`; and the bubble that is made of it.
void check_round(const std::vector<SleepingRound>& rounds, double work, double makespan, int stages, double bubble) {
  REQUIRE(rounds.size() == 1);
  const auto& [asked, slept, begin, end] = rounds[0];
  CHECK(asked == Approx(work));
  CHECK(slept > (1 - kRounding) * asked);
  CHECK(end - begin > (1 - kRounding) * makespan);
  CHECK(bubble == Approx(1 - slept / (stages * (end - begin))));
  CHECK(bubble > 0);
  CHECK(bubble < 1);
}

void check(const PipelineBubble& bubble) {
  const auto& [schedule, stages, micro_batches, chunks] = bubble.benchmark;
  const double makespan =
      simulate(make_schedules(schedule, stages, micro_batches, chunks), {.forward_seconds = kSeconds / chunks,
                                                                         .backward_seconds = 2 * kSeconds / chunks,
                                                                         .sends = SendMode::buffered})
          .makespan;
  check_round(bubble.rounds, stages * micro_batches * 3 * kSeconds, makespan, stages, bubble.measured);
}

/// The others' formulas are 16, 9 and 11 % against 27.
bool is_in_order(const PipelineBubble& bubble, const PipelineBubble& plain) {
  const std::string& schedule = bubble.benchmark.schedule;
  return schedule == "gpipe" || schedule == "1f1b" || bubble.by_list < plain.by_list;
}

}  // namespace

TEST_CASE("pipeline benchmark: stages do all work of a schedule in its order") {
  std::vector<PipelineBubble> bubbles;
  for (const PipelineCase& benchmark : pipeline_cases()) bubbles.push_back(measure_bubble(benchmark, kSeconds, 1));
  const auto plain = std::find_if(bubbles.begin(), bubbles.end(),
                                  [](const PipelineBubble& each) { return each.benchmark.schedule == "1f1b"; });
  REQUIRE(plain != bubbles.end());
  const Report written = report(bubbles);
  for (std::size_t i = 0; i < bubbles.size(); ++i) {
    const PipelineBubble& bubble = bubbles[i];
    CAPTURE(bubble.benchmark.schedule, bubble.benchmark.chunks, bubble.measured, bubble.formula);
    check(bubble);
    CHECK(bubble.by_list == Approx(bubble.formula));
    CHECK(is_in_order(bubble, *plain));
    CHECK(written.rows.at(i).at("stages") == 4);
    CHECK(written.rows.at(i).at("bubble_measured") == bubble.measured);
    CHECK_THAT(written.text, Contains(bubble.benchmark.schedule));
  }
}

TEST_CASE("pipeline benchmark: the model's ends are on the right stages") {
  check(measure_bubble({.schedule = "interleaved", .stages = 3, .micro_batches = 5, .chunks = 3}, kSeconds, 1));
  check(measure_bubble({.schedule = "zero_bubble", .stages = 3, .micro_batches = 2}, kSeconds, 1));
}

TEST_CASE("pipeline benchmark: each token of each prompt passes all stages once") {
  const DecodingPipeline pipeline = measure_decoding_pipeline(kSeconds, 1);
  CHECK(pipeline.by_order == Approx(3.0 / (8 * 16 + 3)));
  check_round(pipeline.rounds, 4 * 8 * 16 * kSeconds, (8 * 16 + 3) * kSeconds, 4, pipeline.bubble);
}
