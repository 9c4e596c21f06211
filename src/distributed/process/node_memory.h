// Whether a node, or a device that its ranks share, has the memory that they are going to take.
#pragma once

#include <string>

#include "backend/ops/device.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Bytes that a rank is going to allocate.
struct MemoryNeed {
  std::size_t device = 0;  ///< where its tensors are
  std::size_t host = 0;    ///< pinned, where the device has its own memory
};

/// `host` is this rank's node, on whose `device` it computes. Collective over the world; throws on all ranks
/// Error(configuration) if the ranks that share a node's memory, or one of its devices, together need more than is free
/// there. `advice`, on what needs less of the device's, is the end of that. What does not say what is free has enough.
void require_memory(Communicator& world, const std::string& host, const Device& device, const MemoryNeed& need,
                    const std::string& advice);

}  // namespace megatron
