// DropoutRule: what the draws of a Dropout (ops.h) are compared with, and what is kept multiplied by, on every backend.
#pragma once

#include <cmath>
#include <cstdint>

namespace megatron {

/// Threshold of the draws: the probability quantised to 16 bits; and the factor of the kept values.
struct DropoutRule {
  std::int32_t threshold = 0;  ///< kept iff the 16-bit draw is >= this; 0..65536
  float scale = 1;             ///< 65536 / (65536 - threshold); 0 when everything is dropped

  explicit DropoutRule(float probability)
      : threshold(static_cast<std::int32_t>(std::lround(static_cast<double>(probability) * 65536.0))),
        scale(threshold < 65536 ? 65536.0f / static_cast<float>(65536 - threshold) : 0.0f) {}
};

}  // namespace megatron
