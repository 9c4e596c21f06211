// A run directory must be the same one on every node, and take files of every rank: found before the first step.
#pragma once

#include <string>

#include "config/schema/config.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Rank 0, on `host`, has prepared the run directory: do all ranks see that one, and can each write where checkpoints
/// go? Makes their folder, if there will be any, and leaves no file. Collective; throws Error(filesystem) on all ranks.
void require_shared_directory(Communicator& world, const Config& config, const std::string& host);

}  // namespace megatron
