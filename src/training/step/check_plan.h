// CheckPlan: what a check of collectives (distributed/parallel/checked_collectives.h) takes on a rank besides the
// MemoryPlan, learnt in the same way.
#pragma once

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "training/step/compute.h"

namespace megatron {

/// Bytes.
struct CheckPlan {
  std::size_t kept = 0;  ///< results that are kept from their callers, where the tensors are: the most of a step
  std::size_t read = 0;  ///< on the host, where the tensors are a device's: no tensor that is read there is larger
};

/// Plays one training step of the rank at `at` without memory. The configuration must be resolved.
CheckPlan plan_check(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport);

}  // namespace megatron
