// RunSchedule: what each step of a run trains on, and how steps, samples and tokens turn into each other. Pure
// arithmetic over the configuration's batches and sequences; owns nothing else and knows neither ranks nor data.
//
// The one place for these conversions: the length of a run, warm-up and decay, counters, metrics and plans all ask
// here.
#pragma once

#include <cstdint>

#include "config/schema/batch_schedule.h"
#include "config/schema/sequence_schedule.h"

namespace megatron {

/// One step's global batch: samples [first_sample, first_sample + samples) of the sample order, the first `sequence`
/// tokens of each.
struct StepShape {
  std::int64_t first_sample = 0, samples = 0, sequence = 0;
  std::int64_t tokens() const { return samples * sequence; }
};

class RunSchedule {
 public:
  /// train.global_batch_size, train.batch_ramp_up, model.sequence_length and train.curriculum, which the
  /// configuration's rules must accept: not a ramp-up and a curriculum together.
  explicit RunSchedule(const Config& config);

  /// The step after `done` others.
  StepShape step_after(std::int64_t done) const;

  /// Consumed by the first `steps` steps. Both saturate at the largest 64-bit number instead of overflowing.
  std::int64_t samples_after(std::int64_t steps) const { return batches_.samples_after(steps); }
  std::int64_t tokens_after(std::int64_t steps) const;

  /// Most whole steps that this number of samples or tokens is enough for; the rest is not used.
  std::int64_t steps_for_samples(std::int64_t samples) const { return batches_.steps_for(samples); }
  std::int64_t steps_for_tokens(std::int64_t tokens) const;

  /// In the first samples of the run, as many as given.
  std::int64_t tokens_of_samples(std::int64_t samples) const;

  const BatchSchedule& batches() const { return batches_; }
  const SequenceSchedule& sequences() const { return sequences_; }

 private:
  BatchSchedule batches_;
  SequenceSchedule sequences_;
  bool grows_;  // the sequences: then the batches do not
};

}  // namespace megatron
