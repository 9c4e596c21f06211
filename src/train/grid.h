// The grid of ranks that a configuration asks for.
#pragma once

#include "comm/process_grid.h"
#include "config/config.h"

namespace megatron {

/// The configuration must be resolved.
GridShape grid_shape(const Config& config);

}  // namespace megatron
