// TrainingJob: a model in training on this rank, on pseudo-random tokens, for benchmarks that compare several of them
// in one process. Owns the model and its backend. Must not know what is compared.
#pragma once

#include "base/stopwatch.h"
#include "bench/random_batch.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "ops/device.h"
#include "train/grid.h"
#include "train/replica.h"

namespace megatron {

class TrainingJob {
 public:
  /// `config` is resolved for the ranks of `world`, with one micro-batch a data rank. Both must outlive the job, as
  /// must the `transport` of a device's tensors, where the world cannot move them.
  TrainingJob(const Config& config, Backend backend, Communicator& world, Communicator* transport = nullptr);

  /// As parallel.overlap_gradients, from the next step on.
  void overlap_gradients(bool overlap) { replica_.overlap_gradients(overlap); }
  /// Seconds per step of a number of steps in a row, on the slowest rank. Collective.
  double seconds(int steps);

 private:
  Communicator& world_;
  Backend backend_;
  ProcessGrid grid_;
  Timers timers_;
  Replica replica_;
  RandomBatch batch_;
  std::int64_t step_ = 0;
};

/// The median of the rounds' ratios.
double median_ratio(const std::vector<double>& over, const std::vector<double>& under);

}  // namespace megatron
