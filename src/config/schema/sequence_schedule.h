// SequenceSchedule: how long the sequences of each step are. Pure arithmetic over (sequence length, curriculum), in
// whole numbers; owns nothing and knows neither batches nor data.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Without a curriculum every length is the model's. With one, step t (1, 2, ...) has
///   fixed_linear    start + (whole − start) · t / steps
///   fixed_root      start + (whole − start) · (t / steps)^(1 / root_degree)
/// rounded down to a multiple of `multiple` and at most the whole length; or, fixed_discrete, lengths[i] while
/// t ≤ until[i], then the last of lengths.
class SequenceSchedule {
 public:
  /// The curriculum must be one that the configuration's rules accept; anything else is an internal error.
  explicit SequenceSchedule(std::int64_t sequence_length, const Curriculum& curriculum = {});

  /// Tokens of each sample in step `step`, of which the first is 1.
  std::int64_t length_of(std::int64_t step) const;

  /// Tokens of one sample of each of the first `steps` steps together. Saturates at the largest 64-bit number.
  std::int64_t tokens_after(std::int64_t steps) const;

  /// Most whole steps with at most this number of tokens, one sample a step.
  std::int64_t steps_for(std::int64_t tokens) const;

  /// Steps before the length stays as it is. Zero without a curriculum.
  std::int64_t growing_steps() const { return levels_.back().first_step; }

 private:
  struct Level {
    std::int64_t length, first_step, first_token;  ///< steps after first_step others have this length
  };
  template <class Condition>
  const Level& last_level(Condition condition) const;
  void begin_level(std::int64_t length, std::int64_t first_step);

  std::vector<Level> levels_;  ///< ascending; the last one never ends
};

}  // namespace megatron
