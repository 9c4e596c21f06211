// Cores: whether the threads of a run fit the cores that its processes may use. Launchers bind ranks to cores, batch
// systems hand out fewer than a node has, and a rank with several threads on one core runs slower than with one thread.
//
// Knows affinity masks, not what the threads do.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"

namespace megatron {

/// Cores that one rank may use.
struct RankCores {
  std::string host;
  int of_host = 0;      ///< how many the host has
  std::set<int> cores;  ///< by the kernel's numbers; empty where they cannot be told
};

/// This process's, by its affinity mask.
RankCores cores_of_process(const std::string& host);

/// One line for each thing that is wrong with `threads` on each of these ranks, none if all is well or with one
/// thread: ranks that are bound to fewer cores than threads, other hosts with fewer cores than their ranks' threads.
std::vector<std::string> core_warnings(const std::vector<RankCores>& ranks, std::int64_t threads);

/// The same for a running job; collective, known to rank 0.
std::vector<std::string> core_warnings(Communicator& world, const std::string& host, std::int64_t threads);

}  // namespace megatron
