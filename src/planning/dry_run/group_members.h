// The parameters that optimizer.groups are of, in a whole model: checked and told before anything is trained.
#pragma once

#include <string>

#include "config/schema/config.h"

namespace megatron {

/// A line about each group (its selection, how it is updated, how many tensors and elements it has), then one about the
/// parameters of none; without groups "". The configuration must be resolved. Errors: configuration, for a group that
/// has no parameter. All ranks get the same.
std::string describe_groups(const Config& config);

}  // namespace megatron
