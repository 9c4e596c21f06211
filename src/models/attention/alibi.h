// The slopes of attention with linear biases. Knows nothing of layers or devices.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// ALiBi's slopes (Press et al. 2022) of all of a model's heads: 2^(-8 (i + 1) / n) for a power of two; for other
/// numbers those of the next smaller power, then every second one of the next larger.
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace megatron
