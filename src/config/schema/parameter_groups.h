// Groups of parameters with their own keys of [optimizer]: which keys these may be, and what follows from them.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "config/schema/schema.h"

namespace megatron {

/// The rows of [optimizer] that a group may have its own value of: the rule, what rules read, the weight decay.
std::vector<const Key*> group_keys();

/// [optimizer] as it is for the group's parameters.
OptimizerConfig settings_of(const OptimizerConfig& optimizer, const ParameterGroupConfig& group);

/// Sets optimizer.momentum, if it is absent, to the rule's own, and that of groups whose rule has another one.
void derive_momentum(Config& config);

/// The selection of the group, as an input file has it: roles = ["head"], names = ["layers.*"].
std::string selection_text(const ParameterGroupConfig& group);

/// Whether a parameter's name is like the pattern, in which * stands for any characters, and for none.
bool is_like(std::string_view name, std::string_view pattern);

}  // namespace megatron
