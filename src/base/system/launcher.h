// Facts about the MPI launcher that started this process: its environment, and its own process on this host.
#pragma once

#include <sys/types.h>

#include <optional>

namespace megatron {

/// This process' rank by Open MPI's, PMIx' or Slurm's variables; nothing without a launcher.
std::optional<int> rank_by_launcher();

/// The process of mpirun, or of its daemon on this host, that started this one; 0 if there is none that a user could
/// end (Slurm's belong to the system).
pid_t launcher_process();

}  // namespace megatron
