// TrainingJob: a model in training on this rank, on pseudo-random tokens, for benchmarks, which may compare several of
// them in one process. Owns the model and its backend. Must not know what is compared.
#pragma once

#include "base/core/stopwatch.h"
#include "config/schema/config.h"
#include "distributed/comm/communicator.h"
#include "planning/bench/random_batch.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/replica.h"

namespace megatron {

class TrainingJob {
 public:
  /// `config` is resolved for the ranks of `world`, with one micro-batch a data rank. The world must outlive the job.
  TrainingJob(const Config& config, Compute compute, Communicator& world);

  /// As parallel.overlap_gradients, from the next step on.
  void overlap_gradients(bool overlap) { replica_.overlap_gradients(overlap); }
  /// A number of steps in a row: this rank's seconds for all. The timers are of these steps.
  Seconds run(int steps);
  /// Seconds per step of a number of steps in a row, which ranks begin together, on the slowest. Collective.
  double seconds(int steps);

  Backend& backend() { return compute_.backend; }
  const ProcessGrid& grid() const { return grid_; }
  const Replica& replica() const { return replica_; }
  Timers& timers() { return timers_; }

 private:
  Communicator& world_;
  Compute compute_;
  ProcessGrid grid_;
  Timers timers_;
  Replica replica_;
  RandomBatch batch_;
  UpdateSettings update_;  // the same in every step
  std::int64_t step_ = 0;
};

/// The CPU's backend; the world moves its tensors.
Compute cpu_compute(int threads = 1);

/// The median of the rounds' ratios.
double median_ratio(const std::vector<double>& over, const std::vector<double>& under);

}  // namespace megatron
