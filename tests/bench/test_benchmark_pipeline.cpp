#include <algorithm>
#include <string>
#include <vector>

#include "bench/benchmark_pipeline.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::vector<PipelineBubble> measure_all(double seconds) {
  std::vector<PipelineBubble> bubbles;
  for (const PipelineCase& benchmark : pipeline_cases()) bubbles.push_back(measure_bubble(benchmark, seconds, 3));
  return bubbles;
}

// Sleeping stages are equally fast but for what the machine does to them, which adds to the bubble.
bool is_near_formula(const PipelineBubble& bubble) {
  return bubble.measured > 0.8 * bubble.formula && bubble.measured < 0.15 + bubble.formula;
}

const PipelineBubble& plain_of(const std::vector<PipelineBubble>& bubbles) {
  return *std::find_if(bubbles.begin(), bubbles.end(),
                       [](const PipelineBubble& bubble) { return bubble.benchmark.schedule == "1f1b"; });
}

/// The others' formulas are 16, 9 and 11 % against 27.
bool is_in_order(const PipelineBubble& bubble, const PipelineBubble& plain) {
  const std::string& schedule = bubble.benchmark.schedule;
  return schedule == "gpipe" || schedule == "1f1b" || bubble.measured < plain.measured;
}

}  // namespace

TEST_CASE("pipeline benchmark: a measured bubble is at least the schedule's own") {
  // On a machine that has other work threads wake some milliseconds late: next to longer stages that is less. What is
  // wrong in the executor or in a list is as wrong there.
  std::vector<PipelineBubble> bubbles;
  for (double seconds = 5e-3; seconds <= 80e-3; seconds *= 2) {
    bubbles = measure_all(seconds);
    if (std::all_of(bubbles.begin(), bubbles.end(), [&](const PipelineBubble& bubble) {
          return is_near_formula(bubble) && is_in_order(bubble, plain_of(bubbles));
        }))
      break;
  }
  for (const PipelineBubble& bubble : bubbles) {
    CAPTURE(bubble.benchmark.schedule, bubble.benchmark.chunks, bubble.measured, bubble.formula);
    CHECK(bubble.by_list == Approx(bubble.formula));
    CHECK(is_near_formula(bubble));
    CHECK(is_in_order(bubble, plain_of(bubbles)));
    CHECK(to_json(bubble).find("\"stages\":4") != std::string::npos);
    CHECK(describe({bubble}).find(bubble.benchmark.schedule) != std::string::npos);
  }
}

TEST_CASE("pipeline benchmark: the model's ends are on the right stages") {
  for (const PipelineCase& benchmark :
       {PipelineCase{.schedule = "interleaved", .stages = 3, .micro_batches = 5, .chunks = 3},
        PipelineCase{.schedule = "zero_bubble", .stages = 3, .micro_batches = 2}}) {
    const double measured = measure_bubble(benchmark, 1e-4, 2).measured;
    CHECK(measured > 0);
    CHECK(measured < 1);
  }
}
