#include "job/node_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/agreement.h"
#include "system/memory_usage.h"
#include "text/byte_text.h"

namespace megatron {

namespace {

constexpr const char* kHostAdvice =
    "start fewer ranks per node, or, if checkpoint.async is true, save without it (--dry-run says what a rank needs)";

struct Place {
  double needed = 0, free = std::numeric_limits<double>::infinity();
  std::string advice;
};

nlohmann::json place(const std::string& name, std::size_t needed, std::optional<std::size_t> free,
                     const std::string& advice) {
  nlohmann::json result = {{"name", name}, {"needed", needed}, {"advice", advice}};
  if (free) result["free"] = *free;
  return result;
}

}  // namespace

void require_memory(Communicator& world, const std::string& host, const Device& device, const MemoryNeed& need,
                    const std::string& advice) {
  nlohmann::json mine = nlohmann::json::array();
  if (device.is_host_memory()) {
    mine.push_back(place(host, need.device + need.host, device.free_bytes(), advice));
  } else {
    mine.push_back(place(fmt::format("{} of {}", device.identity(), host), need.device, device.free_bytes(), advice));
    // Pinned: swap does not help.
    mine.push_back(
        place(fmt::format("{}, in the host's own memory,", host), need.host, free_memory_bytes(), kHostAdvice));
  }
  const std::vector<std::string> ranks = world.gather_texts(mine.dump(), 0);
  agree(world, [&] {
    std::map<std::string, Place> places;
    for (const std::string& text : ranks) {
      for (const auto& one : nlohmann::json::parse(text)) {
        Place& at = places[one.at("name")];
        at.needed += one.at("needed").get<double>();
        at.free = std::min(at.free, one.value("free", at.free));
        at.advice = one.at("advice");
      }
    }
    for (const auto& [name, at] : places) {
      verify(at.needed <= at.free, ErrorKind::configuration,
             "the ranks on {} need {} together, and {} are free there; {}", name, format_bytes(at.needed),
             format_bytes(at.free), at.advice);
    }
  });
}

}  // namespace megatron
