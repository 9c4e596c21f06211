#include "nn/positions.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace megatron {

namespace {

double scaled(double frequency, const RotaryScaling& scaling) {
  const double stretched = frequency / scaling.factor;
  switch (scaling.kind) {
    case RotaryScaling::Kind::none: return frequency;
    case RotaryScaling::Kind::linear: return stretched;
    case RotaryScaling::Kind::llama3: break;
  }
  // How often a pair turns within the original length, from low to high as from 0 to 1.
  const double turns = static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (turns < low) return stretched;
  if (turns > high) return frequency;
  const double kept = (turns - low) / (high - low);
  return (1 - kept) * stretched + kept * frequency;
}

}  // namespace

std::vector<float> rotary_inverse_frequencies(std::int64_t head_size, double fraction, double base,
                                              const RotaryScaling& scaling) {
  const auto channels = static_cast<std::int64_t>(static_cast<double>(head_size) * fraction);
  verify(
      channels > 0 && channels <= head_size && channels % 2 == 0, ErrorKind::configuration,
      "rotary embedding of the part {} of {} channels a head: {} channels, and it must be an even number from 2 to {}",
      fraction, head_size, channels, head_size);
  verify(base >= 1 && std::isfinite(base), ErrorKind::configuration, "rotary base {}: must be at least 1", base);
  verify(scaling.factor >= 1 && std::isfinite(scaling.factor), ErrorKind::configuration,
         "rotary scaling by {}: must be at least 1", scaling.factor);
  verify(
      scaling.kind != RotaryScaling::Kind::llama3 ||
          (scaling.low_frequency_factor > 0 && scaling.low_frequency_factor < scaling.high_frequency_factor &&
           scaling.original_length > 0),
      ErrorKind::configuration,
      "rotary scaling from low frequency factor {} to high {} at length {}: must be positive, and low less than high",
      scaling.low_frequency_factor, scaling.high_frequency_factor, scaling.original_length);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < channels; i += 2) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(channels));
    frequencies.push_back(static_cast<float>(scaled(frequency, scaling)));
  }
  return frequencies;
}

std::vector<float> alibi_slopes(std::int64_t heads) {
  internal_check(heads > 0, "ALiBi slopes of no heads");
  const auto slope = [](std::int64_t i, std::int64_t of) {
    return static_cast<float>(std::exp2(-8 * static_cast<double>(i + 1) / static_cast<double>(of)));
  };
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  for (std::int64_t i = 0; i < power; ++i) slopes.push_back(slope(i, power));
  for (std::int64_t i = 0; i < heads - power; ++i) slopes.push_back(slope(2 * i, 2 * power));
  return slopes;
}

}  // namespace megatron
