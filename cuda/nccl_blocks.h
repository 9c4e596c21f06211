// How many thread blocks NCCL may use for each communicator of a rank: ncclConfig_t::maxCTAs.
//
// A kernel of NCCL spins on its multiprocessors until the other ranks' kernels run. If more blocks were in flight than
// fit, kernels could wait for each other's places, each for a rank that waits the same way. So all communicators of a
// rank together get fewer blocks than an A100 has multiprocessors; smaller GPUs (A10, L4) have no such guarantee.
// Matrix products keep most multiprocessors while the data ranks' sums run.
#pragma once

#include <string_view>

namespace megatron {

/// Collectives of a group of ProcessGrid, by its name. The world, a pipeline and a model replica sum only scalars.
constexpr int nccl_blocks(std::string_view group) {
  if (group == "tensor") return 32;  // layers wait for these sums: nothing else runs
  if (group == "data") return 16;
  if (group == "embedding" || group == "kv_replicas") return 8;
  return 2;
}

/// Messages between neighbouring stages: of one direction and channel.
inline constexpr int kNcclMessageBlocks = 8;
/// To and from the next stage and the previous one: activations and their gradients.
inline constexpr int kNcclMessageLanes = 4;

inline constexpr int kFewestMultiprocessors = 108;  ///< of the data-centre GPUs that NCCL is for: an A100
static_assert(nccl_blocks("tensor") + nccl_blocks("data") + nccl_blocks("embedding") + nccl_blocks("kv_replicas") +
                  nccl_blocks("world") + nccl_blocks("pipeline") + nccl_blocks("model") +
                  kNcclMessageLanes * kNcclMessageBlocks <
              kFewestMultiprocessors);

}  // namespace megatron
