#include "planning/bench/training_job.h"

#include "backend/ops/backends.h"

namespace megatron {

TrainingJob::TrainingJob(const Config& config, Compute compute, Communicator& world)
    : world_(world),
      compute_(std::move(compute)),
      grid_(world, grid_shape(config), compute_.transport.get()),
      replica_(config, grid_, compute_.backend),
      batch_(config, grid_.data().rank(), grid_.context().rank(), *compute_.backend.device),
      update_{.learning_rate = config.learning_rate.peak, .weight_decay = config.optimizer.weight_decay} {}

Seconds TrainingJob::run(int steps) {
  timers_.reset();
  return time_of([&] {
    for (int i = 0; i < steps; ++i) {
      const StepSums sums = replica_.forward_backward(batch_.micro_batches(), ++step_, batch_.loss(), timers_);
      replica_.update(sums, update_, timers_);
    }
    replica_.wait_for_values();
    compute_.backend.device->synchronize();
  });
}

double TrainingJob::seconds(int steps) {
  world_.barrier();
  return world_.all_reduce_value(run(steps).wall, kReportMaximum) / steps;
}

Compute cpu_compute(int threads) {
  return {.backend = make_cpu_backend(threads), .transport = {}, .description = {}};
}

double median_ratio(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
  return median(ratios);
}

}  // namespace megatron
