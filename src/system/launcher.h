// What an MPI launcher has said to this process in its environment, before MPI is started.
#pragma once

#include <optional>

namespace megatron {

/// This process' rank by Open MPI's, PMIx' or Slurm's variables; nothing without a launcher.
std::optional<int> rank_by_launcher();

}  // namespace megatron
