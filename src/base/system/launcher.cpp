#include "base/system/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

namespace megatron {

std::optional<int> rank_by_launcher() {
  // MPI_Init sets PMIX_RANK by itself in a process that has no launcher.
  const char* const start = std::getenv("OMPI_MCA_ess");
  const bool alone = start != nullptr && std::string_view(start) == "singleton";
  for (const char* name : {"OMPI_COMM_WORLD_RANK", alone ? "" : "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return std::nullopt;
}

pid_t launcher_process() {
  // Only launchers of a single job: prte and prted may serve others after it.
  constexpr std::array<std::string_view, 6> kNames = {"mpirun", "mpiexec", "orterun",
                                                      "orted",  "prterun", "hydra_pmi_proxy"};
  constexpr int kMostShells = 4;  // between the launcher and this process
  if (!rank_by_launcher()) return 0;
  pid_t process = ::getppid();
  for (int i = 0; i <= kMostShells && process > 1; ++i) {
    std::string text;  // "pid (name) state parent ..."
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), text);
    const std::size_t open = text.find('('), close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos) return 0;
    const std::string_view name = std::string_view(text).substr(open + 1, close - open - 1);
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return process;
    std::istringstream rest(text.substr(close + 1));
    char state = 0;
    rest >> state >> process;
  }
  return 0;
}

}  // namespace megatron
