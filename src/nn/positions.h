// The numbers that position embeddings begin with, computed once on the host: rotary frequencies, ALiBi slopes. Knows
// nothing of layers or devices.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// How rotary frequencies are stretched for sequences longer than those that a model was first trained on.
struct RotaryScaling {
  enum class Kind {
    none,
    linear,  ///< all by the factor: positions in between (Chen et al. 2023)
    llama3,  ///< by the factor where a turn is longer than original_length / low_frequency_factor, not at all where it
             ///< is shorter than original_length / high_frequency_factor, smoothly in between (Llama 3.1)
  };
  Kind kind = Kind::none;
  double factor = 1;
  double low_frequency_factor = 1, high_frequency_factor = 4;
  std::int64_t original_length = 8192;  ///< positions
};

/// base^(-2i / r), scaled, for i < r/2, in radians a position, where r is the part `fraction` of a head's channels,
/// rounded down. Error(configuration) unless r is even and positive, base and factor are at least 1, and the rest of
/// the scaling is positive and in order.
std::vector<float> rotary_inverse_frequencies(std::int64_t head_size, double fraction, double base,
                                              const RotaryScaling& scaling = {});

/// ALiBi's slopes (Press et al. 2022) of all of a model's heads: 2^(-8 (i + 1) / n) for a power of two; for other
/// numbers those of the next smaller power, then every second one of the next larger.
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace megatron
