// Operations that name themselves in profiles: a range of NVIDIA's tools extension around each call, inside of those of
// the phase and the layer (Ops::ranges), so that nsys shows which of them a kernel of cuBLASLt or of ours belongs to.
#pragma once

#include <memory>

#include "backend/ops/ops.h"

namespace megatron {

/// `ops` itself, or, with MEGATRON_NVTX=1 in the environment, `ops` with ranges.
std::unique_ptr<Ops> with_ranges_if_wanted(std::unique_ptr<Ops> ops);

}  // namespace megatron
