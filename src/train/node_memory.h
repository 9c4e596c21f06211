// Whether a node, or a device that its ranks share, has the memory that they are going to take.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "ops/device.h"

namespace megatron {

/// `host` is this rank's node, on whose `device` it is going to allocate `needed` bytes. Collective over the world;
/// throws on all ranks Error(configuration) if the ranks that share a node's memory, or one of its devices, together
/// need more than is free there, with `advice` at the end. What does not say what is free has enough.
void require_memory(Communicator& world, const std::string& host, const Device& device, std::size_t needed,
                    const std::string& advice);

}  // namespace megatron
