// The numbers that rotary position embedding begins with, computed once on the host. Knows nothing of layers or
// devices.
#pragma once

#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// base^(-2i / r), in radians a position, for i < r/2, where r is the model's rotary_size(), stretched as its
/// rotary_scaling says (Su et al. 2021). The model has passed the configuration's rules: what they refuse is an
/// internal error here.
std::vector<float> rotary_inverse_frequencies(const ModelConfig& model);

}  // namespace megatron
