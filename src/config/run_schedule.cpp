#include "config/run_schedule.h"

#include <limits>

namespace megatron {

RunSchedule::RunSchedule(const Config& config)
    : batches_(config.train.global_batch_size, config.train.batch_ramp_up), sequence_(config.model.sequence_length) {}

StepShape RunSchedule::step_after(std::int64_t done) const {
  const std::int64_t first = batches_.samples_after(done);
  return {first, batches_.batch_at(first), sequence_};
}

std::int64_t RunSchedule::tokens_after(std::int64_t steps) const {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t samples = samples_after(steps);
  return samples > largest / sequence_ ? largest : samples * sequence_;
}

std::int64_t RunSchedule::steps_for_tokens(std::int64_t tokens) const {
  return steps_for_samples(tokens / sequence_);
}

}  // namespace megatron
