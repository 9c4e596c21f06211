// The grid of ranks that a configuration asks for, and how they share the optimizer's state out.
#pragma once

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// The configuration must be resolved.
GridShape grid_shape(const Config& config);
Shards optimizer_shards(const Config& config, const GridShape& shape);

}  // namespace megatron
