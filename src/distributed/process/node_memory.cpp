#include "distributed/process/node_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/system/memory_usage.h"
#include "base/text/byte_text.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

namespace {

constexpr const char* kHostAdvice =
    "start fewer ranks per node, or, if checkpoint.async is true, save without it (--dry-run says what a rank needs)";

constexpr double kUnknown = std::numeric_limits<double>::infinity();

struct MemoryPool {
  double needed = 0, free = kUnknown;  // bytes
  std::string advice;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryPool, needed, free, advice)

MemoryPool memory_pool(std::size_t needed, std::optional<std::size_t> free, const std::string& advice) {
  return {static_cast<double>(needed), free ? static_cast<double>(*free) : kUnknown, advice};
}

}  // namespace

void require_memory(Communicator& world, const std::string& host, const Device& device, const MemoryNeed& need,
                    const std::string& advice) {
  std::map<std::string, MemoryPool> mine;
  if (device.is_host_memory()) {
    mine[host] = memory_pool(need.device + need.host, device.free_bytes(), advice);
  } else {
    mine[fmt::format("{} of {}", device.identity(), host)] = memory_pool(need.device, device.free_bytes(), advice);
    // Pinned: swap does not help.
    mine[fmt::format("{}, in the host's own memory,", host)] = memory_pool(need.host, free_memory_bytes(), kHostAdvice);
  }
  const std::vector<std::map<std::string, MemoryPool>> ranks = gather(world, mine);
  agree(world, [&] {
    std::map<std::string, MemoryPool> pools;
    for (const std::map<std::string, MemoryPool>& rank : ranks) {
      for (const auto& [name, one] : rank) {
        MemoryPool& at = pools[name];
        at.needed += one.needed;
        at.free = std::min(at.free, one.free);
        at.advice = one.advice;
      }
    }
    for (const auto& [name, at] : pools) {
      verify(at.needed <= at.free, ErrorKind::configuration,
             "the ranks on {} need {} together, and {} are free there; {}", name, format_bytes(at.needed),
             format_bytes(at.free), at.advice);
    }
  });
}

}  // namespace megatron
