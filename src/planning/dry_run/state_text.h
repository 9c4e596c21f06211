// Where states, gradients and weights live that a rank does not keep whole, and the price of that: lines of a plan.
#pragma once

#include <string>
#include <vector>

#include "training/step/memory_plan.h"

namespace megatron {

/// The cost of dividing gradients, and weights, which grows with the micro-batches, and of sets of copies. "": none.
std::string describe_share(const Config& config);

/// The part of the optimizer's state that is elsewhere. "": none.
std::string describe_offload(const Config& config, const std::vector<MemoryPlan>& stages);

}  // namespace megatron
