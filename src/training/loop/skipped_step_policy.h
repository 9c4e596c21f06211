// SkippedStepPolicy: counts the steps that were skipped because their loss or gradient was not finite, and decides what
// is to be done about each. Pure: the same results make the same decisions, on every rank.
//
// A gradient that overflows while the loss scale can still be lowered says nothing about the model, so that it is only
// counted at first. If train.max_skipped_steps in a row are reached that way, the last of them is repeated at the
// smallest scale of the search: what is finite there only needs more steps, and counting begins anew.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace megatron {

/// The decision about a step.
enum class SkipAction {
  none,     ///< it was not skipped
  search,   ///< say that a smaller loss scale is looked for
  warn,     ///< say that it was skipped, for a reason that has been told
  explain,  ///< find out why, say so, and tell explained()
  give_up,  ///< find out why, tell explained(), and end the run unless a smaller loss scale cures it
};

class SkippedStepPolicy {
 public:
  /// `most_in_a_row`: train.max_skipped_steps.
  explicit SkippedStepPolicy(std::int64_t most_in_a_row) : most_in_a_row_(most_in_a_row) {}

  /// After every step. `searching`: skipped for its gradient alone, and a smaller loss scale may be all it takes.
  /// `ends`: no other follows that could tell whether it does.
  SkipAction observe(bool skipped, bool searching, bool ends);
  /// After a closer look. `smaller_scale_cures`: at the smallest loss scale of the search everything is finite.
  void explained(bool smaller_scale_cures);

  std::int64_t since_line() const { return since_line_; }
  void begin_line() { since_line_ = 0; }
  std::int64_t in_all() const { return in_all_; }
  /// Up to the last step, and for no reason that a smaller loss scale would remove as far as is known.
  std::int64_t in_a_row() const { return in_a_row_; }

  /// The state in a checkpoint: an object.
  nlohmann::json state() const;
  /// Errors: checkpoint, for counters that a run of `steps` cannot have.
  void set_state(const nlohmann::json& state, std::int64_t steps);

 private:
  std::int64_t most_in_a_row_;
  std::int64_t since_line_ = 0;  // since the last line of the metrics
  std::int64_t in_all_ = 0;      // by the run, before it was resumed included
  std::int64_t in_a_row_ = 0;    // since a step was good, or would have been at the smallest loss scale
  bool explained_ = false;       // one of these
};

}  // namespace megatron
