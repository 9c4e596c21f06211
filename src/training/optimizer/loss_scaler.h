// LossScaler: the factor of the loss before the backward of 16-bit floats with few exponent bits, so that small
// gradients do not become zero; the update divides by it again. A state machine of three numbers: knows no tensors and
// no ranks (all ranks see the same steps skipped, and so have the same scale).
#pragma once

#include <cstdint>

namespace megatron {

struct LossScalerSettings {
  double constant = 1;  ///< > 0: always this; 0: dynamic, as the others say
  double initial = 4294967296, minimum = 1;
  std::int64_t window = 1000;   ///< good steps in a row that double the scale
  std::int64_t hysteresis = 2;  ///< the bad step that halves it; refilled only when it is doubled
};

/// Dynamic scaling is a search for the largest scale whose gradients are finite (Micikevicius et al. 2018; the counters
/// are Megatron-LM's): a step whose gradient is not finite is skipped, and the scale is halved once the hysteresis is
/// used up; after a window of good steps in a row it is doubled.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerSettings& settings);

  /// The scale of the next step.
  double scale() const { return state_.scale; }
  bool dynamic() const { return settings_.constant == 0; }
  /// A smaller scale may still be what it takes: a bad gradient says nothing about the model yet.
  bool searching() const { return dynamic() && state_.scale > settings_.minimum; }
  /// The smallest scale that the search may come to.
  double smallest() const { return dynamic() ? settings_.minimum : settings_.constant; }

  /// After each step: whether it was skipped because its loss or gradient was not finite.
  void update(bool skipped);

  /// State in a checkpoint. A constant scale has none: set_state() then does nothing.
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0, hysteresis_left = 0;
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  /// Errors: checkpoint, for numbers that no scaler has.
  void set_state(const State& state);

  static constexpr double kLargest = 0x1p100;  ///< further doubling would only take finite gradients to infinity

 private:
  LossScalerSettings settings_;
  State state_;
};

}  // namespace megatron
