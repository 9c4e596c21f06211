#include "distributed/process/code_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

namespace megatron {

std::string code_path_warning(const std::vector<std::string>& hosts, const std::vector<std::string>& paths) {
  std::map<std::string, std::set<std::string>> hosts_of;
  for (std::size_t rank = 0; rank < paths.size(); ++rank) hosts_of[paths[rank]].insert(hosts[rank]);
  if (hosts_of.size() < 2) return "";
  std::string text =
      "hosts compute by different code, so that numbers differ in their last bits from those of equal hosts:";
  for (const auto& [path, names] : hosts_of) text += fmt::format("\n  {} on {}", path, fmt::join(names, " "));
  return text + "\nONEDNN_MAX_CPU_ISA, set to the least of them for all ranks, makes instructions equal";
}

}  // namespace megatron
