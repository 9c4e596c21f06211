#include "training/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/core/error.h"

namespace megatron {

DecayStyle decay_style(const std::string& name) {
  if (name == "cosine") return DecayStyle::cosine;
  if (name == "linear") return DecayStyle::linear;
  if (name == "constant") return DecayStyle::constant;
  if (name == "inverse_sqrt") return DecayStyle::inverse_square_root;
  if (name == "wsd") return DecayStyle::warmup_stable_decay;
  fail(ErrorKind::configuration,
       "learning_rate.decay = \"{}\" is not available: use \"cosine\", \"linear\", \"constant\", \"inverse_sqrt\" or "
       "\"wsd\"",
       name);
}

WsdStyle wsd_style(const std::string& name) {
  if (name == "linear") return WsdStyle::linear;
  if (name == "cosine") return WsdStyle::cosine;
  if (name == "exponential") return WsdStyle::exponential;
  if (name == "minus_sqrt") return WsdStyle::minus_square_root;
  fail(ErrorKind::configuration,
       "learning_rate.wsd_style = \"{}\" is not available: use \"linear\", \"cosine\", \"exponential\" or "
       "\"minus_sqrt\"",
       name);
}

namespace {

// From 1 to 0 while r goes from 0 to 1.
double wsd_decay_factor(WsdStyle style, double r) {
  switch (style) {
    case WsdStyle::linear: return 1 - r;
    case WsdStyle::cosine: return 0.5 * (std::cos(std::numbers::pi * r) + 1);
    case WsdStyle::exponential: return 2 * std::pow(0.5, r) - 1;
    case WsdStyle::minus_square_root: return 1 - std::sqrt(r);
  }
  return 0;
}

}  // namespace

double LearningRate::at(std::int64_t consumed) const {
  const auto n = static_cast<double>(consumed), warmup = static_cast<double>(warmup_length);
  if (warmup_length > 0 && consumed <= warmup_length) return peak * n / warmup;
  if (style == DecayStyle::constant) return peak;
  if (consumed > decay_length) return minimum;
  // Here warm-up < n ≤ decay, or n = 0 without warm-up: the length below is zero only in an empty run.
  const double length = static_cast<double>(decay_length) - warmup;
  const double progress = length > 0 ? (n - warmup) / length : 1;
  switch (style) {
    case DecayStyle::cosine: return minimum + (peak - minimum) * 0.5 * (std::cos(std::numbers::pi * progress) + 1);
    case DecayStyle::linear: return minimum + (peak - minimum) * (1 - progress);
    case DecayStyle::inverse_square_root:
      return std::max(minimum, peak * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(n, 1.0)));
    case DecayStyle::warmup_stable_decay: {
      const auto decay = static_cast<double>(wsd_decay_length);
      const double into = n - (static_cast<double>(decay_length) - decay);
      return into <= 0 ? peak : minimum + (peak - minimum) * wsd_decay_factor(wsd_style, into / decay);
    }
    case DecayStyle::constant: break;
  }
  return peak;
}

}  // namespace megatron
