// SkippedStepPolicy: counts the steps that were skipped because their loss or gradient was not finite, says why, and
// ends a run in which nothing is learned any more. Collective over the grid.
//
// A gradient that overflows while the loss scale can still be lowered says nothing about the model, so that it is only
// counted at first. If train.max_skipped_steps in a row are reached that way, the last of them is repeated at the
// smallest scale of the search: what is finite there only needs more steps, and counting begins anew; what is not would
// be no better after all of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "config/config.h"
#include "train/trainer.h"

namespace megatron {

class SkippedStepPolicy {
 public:
  /// All references must outlive the policy.
  SkippedStepPolicy(const Config& config, Communicator& world, Trainer& trainer, Log& log)
      : config_(config), world_(world), trainer_(trainer), log_(log) {}

  /// After every step, skipped or not. `ends`: no other follows that could tell whether a smaller loss scale helps.
  /// Errors: numerics, the same on every rank.
  void observe(const StepResult& result, bool ends);

  std::int64_t since_line() const { return since_line_; }
  void begin_line() { since_line_ = 0; }
  std::int64_t in_all() const { return in_all_; }
  /// Up to the last step, and for no reason that a smaller loss scale would remove as far as is known.
  std::int64_t in_a_row() const { return in_a_row_; }

  /// What a checkpoint holds: an object.
  nlohmann::json state() const;
  /// Errors: checkpoint, for counters that a run of `steps` cannot have.
  void set_state(const nlohmann::json& state, std::int64_t steps);

 private:
  void explain(const StepResult& result, bool last);
  void log_search(const StepResult& result, bool looked_closer);

  const Config& config_;
  Communicator& world_;
  Trainer& trainer_;
  Log& log_;
  std::int64_t since_line_ = 0;  // of the metrics
  std::int64_t in_all_ = 0;      // by the run, before it was resumed included
  std::int64_t in_a_row_ = 0;    // since a step was good, or would have been at the smallest loss scale
  bool explained_ = false;       // one of these
};

}  // namespace megatron
