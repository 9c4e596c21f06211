#include "training/optimizer/weight_decay.h"

#include <cmath>
#include <numbers>

#include "base/core/error.h"

namespace megatron {

WeightDecayStyle weight_decay_style(const std::string& name) {
  if (name == "constant") return WeightDecayStyle::constant;
  if (name == "linear") return WeightDecayStyle::linear;
  if (name == "cosine") return WeightDecayStyle::cosine;
  fail(ErrorKind::configuration,
       "optimizer.weight_decay_schedule = \"{}\" is not available: use \"constant\", \"linear\" or \"cosine\"", name);
}

double WeightDecay::at(std::int64_t samples) const {
  if (style == WeightDecayStyle::constant) return start;
  if (samples >= run_samples) return end;
  const double progress = static_cast<double>(samples) / static_cast<double>(run_samples);
  const double share =
      style == WeightDecayStyle::linear ? progress : 0.5 * (std::cos(std::numbers::pi * (1 - progress)) + 1);
  return start + (end - start) * share;
}

}  // namespace megatron
