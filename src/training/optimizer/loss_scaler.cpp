#include "training/optimizer/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"

namespace megatron {

LossScaler::LossScaler(const LossScalerSettings& settings) : settings_(settings) {
  internal_check(settings.constant >= 0 && settings.minimum > 0 && settings.initial >= settings.minimum &&
                     settings.window > 0 && settings.hysteresis > 0,
                 "settings of a loss scaler out of range", settings.constant, settings.minimum, settings.initial,
                 settings.window, settings.hysteresis);
  state_ = dynamic() ? State{settings.initial, 0, settings.hysteresis} : State{settings.constant, 0, 0};
}

void LossScaler::update(bool skipped) {
  if (!dynamic()) return;
  if (skipped) {
    state_.good_steps = 0;
    state_.hysteresis_left = std::max<std::int64_t>(state_.hysteresis_left - 1, 0);
    if (state_.hysteresis_left == 0) state_.scale = std::max(state_.scale / 2, settings_.minimum);
    return;
  }
  if (++state_.good_steps < settings_.window) return;
  state_.good_steps = 0;
  state_.hysteresis_left = settings_.hysteresis;
  state_.scale = std::min(state_.scale * 2, kLargest);
}

void LossScaler::set_state(const State& state) {
  if (!dynamic()) return;
  verify(state.scale > 0 && state.scale <= kLargest && state.good_steps >= 0 && state.hysteresis_left >= 0,
         ErrorKind::checkpoint,
         "a loss scale of {} after {} good steps with {} of the hysteresis left is in the checkpoint; it is damaged",
         state.scale, state.good_steps, state.hysteresis_left);
  // This run's own limits hold from here on.
  state_ = {std::max(state.scale, settings_.minimum), state.good_steps,
            std::min(state.hysteresis_left, settings_.hysteresis)};
}

}  // namespace megatron
