#include "config/schema/run_schedule.h"

#include <limits>

#include "base/core/error.h"

namespace megatron {
namespace {

std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  return b != 0 && a > largest / b ? largest : a * b;
}

}  // namespace

RunSchedule::RunSchedule(const Config& config)
    : batches_(config.train.global_batch_size, config.train.batch_ramp_up),
      sequences_(config.model.sequence_length, config.train.curriculum),
      grows_(!config.train.curriculum.schedule.empty()) {
  internal_check(!grows_ || config.train.batch_ramp_up.start == 0, "RunSchedule: batches and sequences both grow",
                 config.train.batch_ramp_up.start);
}

StepShape RunSchedule::step_after(std::int64_t done) const {
  const std::int64_t first = batches_.samples_after(done);
  return {first, batches_.batch_at(first), sequences_.length_of(done + 1)};
}

std::int64_t RunSchedule::tokens_after(std::int64_t steps) const {
  if (grows_) return saturated_product(sequences_.tokens_after(steps), batches_.batch_at(0));
  return saturated_product(samples_after(steps), sequences_.length_of(1));
}

std::int64_t RunSchedule::steps_for_tokens(std::int64_t tokens) const {
  return grows_ ? sequences_.steps_for(tokens / batches_.batch_at(0))
                : steps_for_samples(tokens / sequences_.length_of(1));
}

std::int64_t RunSchedule::tokens_of_samples(std::int64_t samples) const {
  const std::int64_t steps = steps_for_samples(samples), rest = samples - samples_after(steps);
  return tokens_after(steps) + rest * step_after(steps).sequence;
}

}  // namespace megatron
