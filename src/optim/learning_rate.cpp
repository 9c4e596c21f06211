#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace megatron {

DecayStyle decay_style(const std::string& name) {
  if (name == "cosine") return DecayStyle::cosine;
  if (name == "linear") return DecayStyle::linear;
  if (name == "constant") return DecayStyle::constant;
  if (name == "inverse_sqrt") return DecayStyle::inverse_square_root;
  fail(ErrorKind::configuration,
       "learning_rate.decay = \"{}\" is not available: use \"cosine\", \"linear\", \"constant\" or \"inverse_sqrt\"",
       name);
}

double LearningRate::at(std::int64_t samples) const {
  const auto n = static_cast<double>(samples), warmup = static_cast<double>(warmup_samples);
  if (warmup_samples > 0 && samples <= warmup_samples) return peak * n / warmup;
  if (style == DecayStyle::constant) return peak;
  if (samples > decay_samples) return minimum;
  // Here warm-up < n ≤ decay, or n = 0 without warm-up: the length below is zero only in an empty run.
  const double length = static_cast<double>(decay_samples) - warmup;
  const double progress = length > 0 ? (n - warmup) / length : 1;
  switch (style) {
    case DecayStyle::cosine: return minimum + (peak - minimum) * 0.5 * (std::cos(std::numbers::pi * progress) + 1);
    case DecayStyle::linear: return minimum + (peak - minimum) * (1 - progress);
    case DecayStyle::inverse_square_root:
      return std::max(minimum, peak * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(n, 1.0)));
    case DecayStyle::constant: break;
  }
  return peak;
}

}  // namespace megatron
