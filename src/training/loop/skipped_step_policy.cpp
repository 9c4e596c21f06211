#include "training/loop/skipped_step_policy.h"

#include "base/text/foreign_json.h"

namespace megatron {

SkipAction SkippedStepPolicy::observe(bool skipped, bool searching, bool ends) {
  if (!skipped) {
    in_a_row_ = 0;
    explained_ = false;
    return SkipAction::none;
  }
  ++since_line_;
  ++in_all_;
  const bool last = ++in_a_row_ >= most_in_a_row_;
  if (searching && !last && !ends) return SkipAction::search;
  if (last) return SkipAction::give_up;
  return ends || !explained_ ? SkipAction::explain : SkipAction::warn;
}

void SkippedStepPolicy::explained(bool smaller_scale_cures) {
  if (smaller_scale_cures) in_a_row_ = 0;
  explained_ = !smaller_scale_cures;
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
