// The ranks of a job may be on nodes with separate disks: they must have the same files under the same names.
#pragma once

#include <vector>

#include "data/preprocess/input_identity.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Collective. ErrorKind::data, naming rank and file, unless all ranks have the same files as rank 0. `mine`: of this
/// rank. Files that were modified at different times are read as a whole.
void require_same_inputs(Communicator& world, const std::vector<InputIdentity>& mine);

}  // namespace megatron
