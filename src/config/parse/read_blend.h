// data.train and its like: several sets with their weights. Internal to src/config.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Adds the sets to `blend` and returns ""; or returns what is wrong, beginning with `name` and the place in it.
std::string read_blend(const toml::array& parts, const std::string& name, std::vector<BlendPart>& blend);

}  // namespace megatron
