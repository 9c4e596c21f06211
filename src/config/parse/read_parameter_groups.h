// optimizer.groups: a list of tables, each a selection of parameters with its keys. Internal to src/config.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Sets the field and returns ""; or leaves it and returns what is wrong, beginning with `key` and the place in it.
std::string read_parameter_groups(const toml::array& entries, const std::string& key,
                                  std::vector<ParameterGroupConfig>& field);

}  // namespace megatron
