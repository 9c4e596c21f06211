// Whether a node has the memory that its ranks are going to take.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace megatron {

/// `host` is this rank's node, on which it is going to allocate `needed` bytes. Collective over the world; throws on
/// all ranks Error(configuration) if the ranks of a node together need more than is free there, with `advice` at the
/// end. A node that does not say what is free has enough.
void require_node_memory(Communicator& world, const std::string& host, std::size_t needed, const std::string& advice);

}  // namespace megatron
