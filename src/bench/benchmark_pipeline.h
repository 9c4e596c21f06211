// Benchmark of the pipeline schedules: the real executor plays them on stages that sleep instead of computing, with
// ranks as threads, so that two cores are enough for four stages. What is left is the schedule's own bubble, and what
// the executor, its receives and its sends add to it.
#pragma once

#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace megatron {

struct PipelineCase {
  std::string schedule;
  int stages = 4, micro_batches = 8, chunks = 1;
};

/// Every schedule, with 2 and 4 chunks where it has chunks, on 4 stages with 8 micro-batches.
std::vector<PipelineCase> pipeline_cases();

/// Shares of the whole time in which a stage does not compute.
struct PipelineBubble {
  PipelineCase benchmark;
  double measured = 0;  ///< median of the rounds
  double by_list = 0;   ///< simulated (simulate.h)
  double formula = 0;   ///< published
};

/// Plays the case `rounds` times. A forward through a whole stage sleeps for `seconds`, and each half of a backward as
/// long; a chunk its share of that.
PipelineBubble measure_bubble(const PipelineCase& benchmark, double seconds, int rounds);

/// A table for people, and a line of JSON a case for scripts.
std::string describe(const std::vector<PipelineBubble>& bubbles);
std::string to_json(const PipelineBubble& bubble);

}  // namespace megatron
