#include "run/skipped_step_policy.h"

#include "checkpoint/manifest.h"
#include "run/way_back.h"

namespace megatron {

void SkippedStepPolicy::observe(const StepResult& result, bool ends) {
  if (!result.skipped) {
    in_a_row_ = 0;
    explained_ = false;
    return;
  }
  ++since_line_;
  ++in_all_;
  const bool last = ++in_a_row_ >= config_.train.max_skipped_steps;
  if (result.searching && !last && !ends) return log_search(result, false);
  if (last || ends || !explained_) return explain(result, last);
  log_.warning("step {} is skipped: loss or gradient are not finite, {} steps in a row now", trainer_.step(),
               in_a_row_);
}

void SkippedStepPolicy::explain(const StepResult& result, bool last) {
  const SkipReport report = trainer_.explain_skip(result);
  if (report.smaller_scale_cures) {
    in_a_row_ = 0;
    explained_ = false;
    return log_search(result, true);
  }
  if (last) {
    fail(
        ErrorKind::numerics,
        "step {}: loss or gradient have not been finite for {} steps in a row (train.max_skipped_steps){}, and nothing "
        "is learned any more: {}; {}",
        trainer_.step(), in_a_row_,
        result.loss_scale != 1 ? fmt::format(" at a loss scale of {}", result.loss_scale) : "", report.why,
        way_back(world_, config_.run.directory, trainer_.step() - in_a_row_));
  }
  log_.warning("step {} is skipped: {}", trainer_.step(), report.why);
  explained_ = true;
}

void SkippedStepPolicy::log_search(const StepResult& result, bool looked_closer) {
  const double next = trainer_.loss_scale();
  log_.info("step {} is skipped: the gradient overflows at a loss scale of {}{}; {}", trainer_.step(),
            result.loss_scale, looked_closer ? ", though not at the smallest" : "",
            next < result.loss_scale ? fmt::format("lowered to {}", next) : "lowered if it does again");
}

nlohmann::json SkippedStepPolicy::state() const {
  return {{"skipped", since_line_}, {"skipped_in_a_row", in_a_row_}, {"skipped_in_all", in_all_}};
}

void SkippedStepPolicy::set_state(const nlohmann::json& state, std::int64_t steps) {
  const auto counter = [&](const char* key) {  // early checkpoints lack some
    return state.contains(key) ? integer_at(state, key, 0, steps) : std::int64_t{0};
  };
  since_line_ = counter("skipped");
  in_a_row_ = counter("skipped_in_a_row");
  in_all_ = counter("skipped_in_all");
}

}  // namespace megatron
