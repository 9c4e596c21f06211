#include "config/schema/batch_schedule.h"

#include <algorithm>
#include <limits>

#include "base/core/error.h"

namespace megatron {
namespace {

using Wide = __int128;  // consumed · increments passes 2^63 for long runs

std::int64_t saturated(Wide value) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  return value > largest ? largest : static_cast<std::int64_t>(value);
}

}  // namespace

BatchSchedule::BatchSchedule(std::int64_t global_batch_size, const BatchRampUp& ramp_up)
    : global_batch_size_(global_batch_size), ramp_up_(ramp_up) {
  internal_check(global_batch_size > 0, "BatchSchedule: the global batch size is positive", global_batch_size);
  if (ramp_up.start == 0) {
    levels_.push_back({global_batch_size, 0, 0});
    return;
  }
  internal_check(ramp_up.start > 0 && ramp_up.increment > 0 && ramp_up.samples > 0 &&
                     ramp_up.start < global_batch_size && (global_batch_size - ramp_up.start) % ramp_up.increment == 0,
                 "BatchSchedule: the ramp-up was checked", ramp_up.start, ramp_up.increment, ramp_up.samples,
                 global_batch_size);
  increments_ = (global_batch_size - ramp_up.start) / ramp_up.increment;
  std::int64_t step = 0;
  Wide sample = 0;
  for (std::int64_t level = 0; level < increments_; ++level) {
    // The level ends where consumed · k / samples reaches level + 1; updates that straddle the end belong to it.
    const Wide end = (Wide{level + 1} * ramp_up.samples + increments_ - 1) / increments_;
    if (sample >= end) continue;  // one update was larger than a whole share
    const std::int64_t batch = ramp_up.start + level * ramp_up.increment;
    const Wide updates = (end - sample + batch - 1) / batch;
    levels_.push_back({batch, step, saturated(sample)});
    step += static_cast<std::int64_t>(updates);
    sample += updates * batch;
  }
  ramp_steps_ = step;
  ramp_samples_ = saturated(sample);
  levels_.push_back({global_batch_size, step, ramp_samples_});
}

std::int64_t BatchSchedule::batch_at(std::int64_t consumed) const {
  if (ramp_up_.start == 0 || consumed >= ramp_up_.samples) return global_batch_size_;
  const Wide level = Wide{consumed} * increments_ / ramp_up_.samples;
  return ramp_up_.start + static_cast<std::int64_t>(level) * ramp_up_.increment;
}

std::int64_t BatchSchedule::samples_after(std::int64_t steps) const {
  auto level = levels_.rbegin();
  while (level->first_step > steps) ++level;
  return saturated(level->first_sample + Wide{steps - level->first_step} * level->batch);
}

std::int64_t BatchSchedule::steps_for(std::int64_t samples) const {
  auto level = levels_.rbegin();
  while (level->first_sample > samples) ++level;
  return level->first_step + (samples - level->first_sample) / level->batch;
}

std::int64_t BatchSchedule::completions(std::int64_t steps, std::int64_t period) const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < levels_.size() && levels_[i].first_step < steps; ++i) {
    const Level& level = levels_[i];
    const std::int64_t end = i + 1 < levels_.size() ? std::min(steps, levels_[i + 1].first_step) : steps;
    // A batch of a period or more completes one every time; of a smaller one, none completes two.
    count += level.batch >= period ? end - level.first_step : samples_after(end) / period - level.first_sample / period;
  }
  return count;
}

std::vector<std::int64_t> BatchSchedule::sizes() const {
  std::vector<std::int64_t> result;
  for (const Level& level : levels_) result.push_back(level.batch);
  return result;
}

}  // namespace megatron
