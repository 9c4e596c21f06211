// BatchSchedule: how many samples each update consumes. Pure arithmetic over (global batch size, ramp-up); owns nothing
// and knows neither ranks nor data.
//
// Without ramp-up every batch is `global_batch_size`. With ramp-up {start, increment, samples} the batch grows from
// start to global_batch_size in k = (global_batch_size - start) / increment equal shares of `samples`: after `consumed`
// samples it is start + floor(consumed · k / samples) · increment, computed in whole numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

class BatchSchedule {
 public:
  /// The ramp-up must be one that the configuration's rules accept (start < global, increment divides the difference);
  /// anything else is an internal error.
  explicit BatchSchedule(std::int64_t global_batch_size, const BatchRampUp& ramp_up = {});

  /// Samples in the update that begins after `consumed` samples.
  std::int64_t batch_at(std::int64_t consumed) const;

  /// Samples consumed by the first `steps` updates. Saturates at the largest 64-bit number instead of overflowing.
  std::int64_t samples_after(std::int64_t steps) const;

  /// Most whole updates that `samples` samples are enough for; the rest of the samples is not used.
  std::int64_t steps_for(std::int64_t samples) const;

  /// How many of the first `steps` updates complete a multiple of `period` samples (of an epoch, say): an update that
  /// completes several counts once.
  std::int64_t completions(std::int64_t steps, std::int64_t period) const;

  /// A run of updates with the same batch size, and where it begins.
  struct Level {
    std::int64_t batch, first_step, first_sample;
  };
  /// In order; the last one is global_batch_size and never ends.
  const std::vector<Level>& levels() const { return levels_; }
  /// Every batch size that occurs, in order; one entry without ramp-up.
  std::vector<std::int64_t> sizes() const;

  /// Updates, and the samples they consume, before the batch stays at global_batch_size. Zero without ramp-up.
  std::int64_t ramp_steps() const { return ramp_steps_; }
  std::int64_t ramp_samples() const { return ramp_samples_; }

 private:
  std::int64_t global_batch_size_;
  BatchRampUp ramp_up_;
  std::int64_t increments_ = 0;
  std::int64_t ramp_steps_ = 0, ramp_samples_ = 0;
  std::vector<Level> levels_;
};

}  // namespace megatron
