#include "distributed/process/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "base/text/text.h"
#include "distributed/comm/gather.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankCores, host, of_host, cores)

RankCores cores_of_process(const std::string& host) {
  RankCores rank{host, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), {}};
  // OpenMP has placed this thread already, and the mask says only where.
  for (const char* placed : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(placed) != nullptr) return rank;
  }
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return rank;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) rank.cores.insert(core);
  }
  return rank;
}

std::vector<std::string> core_warnings(const std::vector<RankCores>& ranks, std::int64_t threads) {
  struct Host {
    std::set<int> cores;
    std::int64_t ranks = 0;
    bool bound = false;
  };
  std::map<std::string, Host> hosts;
  std::size_t bound = 0, fewest = 0;
  for (const RankCores& rank : ranks) {
    if (threads == 1 || rank.cores.empty()) continue;
    Host& host = hosts[rank.host];
    host.cores.insert(rank.cores.begin(), rank.cores.end());
    ++host.ranks;
    const auto cores = static_cast<std::int64_t>(rank.cores.size());
    if (cores >= threads || cores >= rank.of_host) continue;
    host.bound = true;
    fewest = bound == 0 ? rank.cores.size() : std::min(fewest, rank.cores.size());
    ++bound;
  }
  std::vector<std::string> warnings;
  if (bound > 0) {
    warnings.push_back(fmt::format(
        "run.threads = {}, but {} of {} are bound to fewer cores ({} at the least): their threads "
        "take turns. Give "
        "each rank its cores: --cpus-per-task={} under Slurm; mpirun --map-by slot:PE={} or --bind-to none",
        threads, bound, counted(static_cast<std::int64_t>(ranks.size()), "rank"), fewest, threads, threads));
  }
  for (const auto& [name, host] : hosts) {
    const std::int64_t wanted = host.ranks * threads, there = static_cast<std::int64_t>(host.cores.size());
    if (wanted <= there || host.bound) continue;
    warnings.push_back(fmt::format(
        "{}: {} threads ({} of each rank) share {} cores, which is slow: waiting threads keep cores busy; use "
        "fewer ranks or a smaller run.threads",
        name, wanted, threads, there));
  }
  return warnings;
}

std::vector<std::string> core_warnings(Communicator& world, const std::string& host, std::int64_t threads) {
  return core_warnings(gather(world, cores_of_process(host)), threads);
}

}  // namespace megatron
