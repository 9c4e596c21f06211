#include "bench/training_job.h"

namespace megatron {

TrainingJob::TrainingJob(const Config& config, Backend backend, Communicator& world, Communicator* transport)
    : world_(world),
      backend_(std::move(backend)),
      grid_(world, grid_shape(config), transport),
      replica_(config, grid_, backend_),
      batch_(config, grid_.data().rank(), *backend_.device) {}

double TrainingJob::seconds(int steps) {
  world_.barrier();
  const Seconds mine = time_of([&] {
    for (int i = 0; i < steps; ++i) {
      replica_.forward_backward(batch_.micro_batches(), ++step_, batch_.loss(), timers_);
      replica_.update({.learning_rate = 1e-4, .weight_decay = 0.01}, timers_);
    }
    replica_.store();  // waits for values that are on their way
  });
  return world_.all_reduce_value(mine.wall, Reduce::maximum) / steps;
}

double median_ratio(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
  return median(ratios);
}

}  // namespace megatron
