// Benchmark: how fast a job of one or a few ranks trains, as a share of what its machine's matrix multiplication could
// do. Whole training steps (forward, backward, update) and the bare products of the model's layers
// are timed in turn, so that other work of the machine affects both alike; ranks multiply at the same time, as they do
// in a step. Model operations are counted causally (models/families/flops.h).
//
// Owns nothing after it returns. Must not know files or data sets: tokens are pseudo-random.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/core/stopwatch.h"
#include "distributed/comm/communicator.h"
#include "planning/bench/cases.h"
#include "planning/bench/report.h"

namespace megatron {

/// A part of a step: a section of it, all calls of one verb, or of one product of a layer.
struct BenchmarkPart {
  std::string name;
  Seconds seconds;   ///< per step; of sections, by the clock on the wall alone
  int calls = 0;     ///< per step; 0 for sections
  double flops = 0;  ///< per step; 0 where they are not counted
};

/// Medians over the measured steps. Of a step the slowest rank's wall time counts and the ranks' mean CPU time (a rank
/// that waits keeps its core busy); of products alone the ranks' mean.
struct BenchmarkResult {
  std::string device;                      ///< the first rank's
  int ranks = 1, threads = 1;              ///< threads of each rank
  double tokens = 0;                       ///< per step, of the job
  double model_flops = 0;                  ///< per step, of the job
  double page_faults = 0;                  ///< per step, of the first rank
  double peak_resident_bytes = 0;          ///< the process's, summed over ranks
  double planned_bytes = 0;                ///< bytes that training holds on the first rank (MemoryPlan)
  Seconds step;                            ///< one training step
  double communication = 0;                ///< seconds of it inside communication, of the rank that spent least there
  std::optional<Seconds> overlapped_step;  ///< with parallel.overlap_gradients, measured in turn; none: no data ranks
  double overlapped_communication = 0;     ///< seconds of it, as above
  Seconds sgemm;                           ///< a rank's products of all layers, forward and backward; 0: not measured
  double sgemm_flops = 0;                  ///< operations of these products
  std::vector<BenchmarkPart> sections;     ///< parts of the first rank's step
  std::vector<BenchmarkPart> verbs;     ///< parts of the first rank's step; none on a device that works asynchronously
  std::vector<BenchmarkPart> products;  ///< parts of the first rank's sgemm

  /// Model FLOP/s over the ranks' sgemm FLOP/s, by either clock.
  double share(double Seconds::*clock) const {
    return (model_flops / ranks / step.*clock) / (sgemm_flops / sgemm.*clock);
  }
};

struct BenchmarkSettings {
  int steps = 0;               ///< 0: the case's
  int threads = 1;             ///< a rank
  std::string device = "cpu";  ///< as run.device
  int local_rank = 0;          ///< among the ranks on this host
  bool training_only = false;  ///< no bare products: their operands would count as memory of the training
};

/// Trains after two steps to warm up. Collective over `world`, which must have the case's ranks; the result is complete
/// on the first.
BenchmarkResult run_benchmark(const Case& benchmark, const BenchmarkSettings& settings, Communicator& world);

/// One row.
Report report(const Case& benchmark, const BenchmarkResult& result);

}  // namespace megatron
