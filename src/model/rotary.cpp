#include "model/rotary.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace megatron {

namespace {

double scaled(double frequency, const RotaryScalingConfig& scaling) {
  if (scaling.type.empty()) return frequency;
  const double stretched = frequency / scaling.factor;
  if (scaling.type == "linear") return stretched;
  internal_check(scaling.type == "llama3", "a rotary scaling that has no formula");
  // How often a pair turns within the original length, from low to high as from 0 to 1.
  const double turns = static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (turns < low) return stretched;
  if (turns > high) return frequency;
  const double kept = (turns - low) / (high - low);
  return (1 - kept) * stretched + kept * frequency;
}

void check(const RotaryScalingConfig& scaling) {
  if (scaling.type.empty()) return;
  verify(scaling.factor >= 1 && std::isfinite(scaling.factor), ErrorKind::configuration,
         "rotary scaling by {}: must be at least 1", scaling.factor);
  verify(
      scaling.low_frequency_factor > 0 && scaling.low_frequency_factor < scaling.high_frequency_factor &&
          scaling.original_length > 0,
      ErrorKind::configuration,
      "rotary scaling from low frequency factor {} to high {} at length {}: must be positive, and low less than high",
      scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_length);
}

}  // namespace

std::vector<float> rotary_inverse_frequencies(const ModelConfig& model) {
  const std::int64_t channels = model.rotary_size();
  verify(channels > 0 && channels <= model.head_size() && channels % 2 == 0, ErrorKind::configuration,
         "rotary embedding of {} of a head's {} channels: must be an even number of them, at least 2", channels,
         model.head_size());
  verify(model.rotary_base >= 1 && std::isfinite(model.rotary_base), ErrorKind::configuration,
         "rotary base {}: must be at least 1", model.rotary_base);
  check(model.rotary_scaling);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < channels; i += 2) {
    const double frequency = std::pow(model.rotary_base, -static_cast<double>(i) / static_cast<double>(channels));
    frequencies.push_back(static_cast<float>(scaled(frequency, model.rotary_scaling)));
  }
  return frequencies;
}

}  // namespace megatron
