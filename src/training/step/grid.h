// The grid of ranks that a configuration asks for, and how they share the optimizer's state out.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// The configuration must be resolved.
GridShape grid_shape(const Config& config);
Shards optimizer_shards(const Config& config, const GridShape& shape);
/// A warning where ranks that share (optimizer.share_within) are on several hosts; "" else. `hosts`: by rank.
std::string sets_on_hosts_warning(const Config& config, const std::vector<std::string>& hosts);

}  // namespace megatron
