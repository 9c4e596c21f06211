#include "system/launcher.h"

#include <cstdlib>
#include <initializer_list>

namespace megatron {

std::optional<int> rank_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return std::nullopt;
}

}  // namespace megatron
