// Benchmark: how fast one rank trains, as a share of what its machine's matrix multiplication could do.
//
// A case is a model with a batch of one micro-batch, fp32, no dropout. Whole training steps (gradients to zero,
// forward, backward, update) and the bare products of the model's layers are timed in turn, so that whatever else the
// machine does meets both alike. Model operations are counted causally (model/flops.h).
//
// Owns nothing after it returns. Must not know files or data sets: tokens are pseudo-random.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "train/stopwatch.h"

namespace megatron {

struct BenchmarkCase {
  std::string name, title;
  Config config;  ///< resolved for one rank
  int steps = 0;  ///< that are measured by default
};

/// GPT-2 124M in two shapes, and a small model.
std::vector<BenchmarkCase> benchmark_cases();

/// A part of a step: a section of it, all calls of one verb, or of one product of a layer.
struct BenchmarkPart {
  std::string name;
  Seconds seconds;   ///< per step; of sections, by the clock on the wall alone
  int calls = 0;     ///< per step; 0 for sections
  double flops = 0;  ///< per step; 0 where they are not counted
};

/// Medians over the measured steps.
struct BenchmarkResult {
  double tokens = 0;                    ///< per step
  double model_flops = 0;               ///< per step
  double page_faults = 0;               ///< per step
  Seconds step;                         ///< one training step
  Seconds sgemm;                        ///< the products of all layers, forward and backward, and nothing else
  double sgemm_flops = 0;               ///< of these
  std::vector<BenchmarkPart> sections;  ///< of the step
  std::vector<BenchmarkPart> verbs;     ///< of the step
  std::vector<BenchmarkPart> products;  ///< of sgemm

  /// Model FLOP/s over sgemm FLOP/s, by either clock.
  double share(double Seconds::*clock) const { return (model_flops / step.*clock) / (sgemm_flops / sgemm.*clock); }
};

/// Trains `steps` steps after two to warm up. `world` must be of one rank.
BenchmarkResult run_benchmark(const BenchmarkCase& benchmark, int steps, Communicator& world);

/// The result as lines for people.
std::string describe(const BenchmarkCase& benchmark, const BenchmarkResult& result);

}  // namespace megatron
