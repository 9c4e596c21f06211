#include "models/families/rotary.h"

#include <cmath>
#include <numbers>

#include "base/core/error.h"

namespace megatron {

namespace {

double scaled(double frequency, const RotaryScalingConfig& scaling) {
  if (scaling.type.empty()) return frequency;
  internal_check(scaling.factor >= 1 && std::isfinite(scaling.factor), "a rotary scaling that shortens",
                 scaling.factor);
  const double stretched = frequency / scaling.factor;
  if (scaling.type == "linear") return stretched;
  internal_check(scaling.type == "llama3", "a rotary scaling that has no formula", scaling.type);
  // How often a pair turns within the original length, from low to high as from 0 to 1.
  const double turns = static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  internal_check(0 < low && low < high && scaling.original_length > 0, "a rotary scaling without a range", low, high,
                 scaling.original_length);
  if (turns < low) return stretched;
  if (turns > high) return frequency;
  const double kept = (turns - low) / (high - low);
  return (1 - kept) * stretched + kept * frequency;
}

}  // namespace

std::vector<float> rotary_inverse_frequencies(const ModelConfig& model) {
  const std::int64_t channels = model.rotary_size();
  internal_check(channels > 0 && channels <= model.head_size() && channels % 2 == 0, "rotary embedding of odd channels",
                 channels, model.head_size());
  internal_check(model.rotary_base > 1 && std::isfinite(model.rotary_base), "a rotary base that is not above 1",
                 model.rotary_base);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < channels; i += 2) {
    const double frequency = std::pow(model.rotary_base, -static_cast<double>(i) / static_cast<double>(channels));
    frequencies.push_back(static_cast<float>(scaled(frequency, model.rotary_scaling)));
  }
  return frequencies;
}

}  // namespace megatron
