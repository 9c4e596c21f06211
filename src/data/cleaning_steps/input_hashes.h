// Hashes of a step's input files, which the ranks read in turn.
#pragma once

#include <string>
#include <vector>

#include "data/preprocess/input_identity.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Hexadecimal XXH3 of each file's contents as they are on disk, on all ranks. Collective; errors: hash_input().
std::vector<std::string> hash_inputs(Communicator& world, const std::vector<InputIdentity>& files);

}  // namespace megatron
