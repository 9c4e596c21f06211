// Benchmarks of pipelines, in training and in decoding: the real code plays them on stages that sleep where others
// compute, with ranks as threads, so that two cores are enough for four stages. What is left is the bubble of the order
// of passes, and what receives and sends add to it.
#pragma once

#include <string>
#include <vector>

#include "planning/bench/report.h"

namespace megatron {

/// All stages' sleeps in one round, in seconds.
struct SleepingRound {
  double asked = 0, slept = 0;  ///< sums of the sleeps that were asked for, and as they were: never less
  double begin = 0, end = 0;    ///< the first stage's and the last's
};

struct PipelineCase {
  std::string schedule;
  int stages = 4, micro_batches = 8, chunks = 1;
};

/// Every schedule, with 2 and 4 chunks where it has chunks, on 4 stages with 8 micro-batches.
std::vector<PipelineCase> pipeline_cases();

/// Shares of the whole time in which a stage does not compute.
struct PipelineBubble {
  PipelineCase benchmark;
  std::vector<SleepingRound> rounds = {};
  double measured = 0;  ///< median of the rounds
  double by_list = 0;   ///< simulated (simulate.h)
  double formula = 0;   ///< published
};

/// Plays the case `rounds` times. A forward through a whole stage sleeps for `seconds`, and each half of a backward as
/// long; a chunk its share of that.
PipelineBubble measure_bubble(const PipelineCase& benchmark, double seconds, int rounds);

/// A row for each.
Report report(const std::vector<PipelineBubble>& bubbles);

/// Groups of prompts that are decoded on a pipeline.
struct DecodingPipeline {
  int stages = 4, groups = 8;
  std::int64_t tokens = 16;  ///< per prompt
  std::vector<SleepingRound> rounds = {};
  double bubble = 0;    ///< measured, the median of the rounds
  double by_order = 0;  ///< filling and draining alone
};
/// A pass through a stage sleeps for `seconds`.
DecodingPipeline measure_decoding_pipeline(double seconds, int rounds);

}  // namespace megatron
