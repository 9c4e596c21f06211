#include "train/node_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/agreement.h"
#include "train/report.h"

namespace megatron {

void require_memory(Communicator& world, const std::string& host, const Device& device, std::size_t needed,
                    const std::string& advice) {
  const std::string place = device.is_host_memory() ? host : fmt::format("{} of {}", device.identity(), host);
  nlohmann::json mine = {{"place", place}, {"needed", needed}};
  if (const std::optional<std::size_t> free = device.free_bytes()) mine["free"] = *free;
  const std::vector<std::string> ranks = world.gather_texts(mine.dump(), 0);
  agree(world, [&] {
    struct Place {
      double needed = 0, free = std::numeric_limits<double>::infinity();
    };
    std::map<std::string, Place> places;
    for (const std::string& text : ranks) {
      const auto rank = nlohmann::json::parse(text);
      Place& at = places[rank.at("place")];
      at.needed += rank.at("needed").get<double>();
      at.free = std::min(at.free, rank.value("free", at.free));
    }
    for (const auto& [name, at] : places) {
      verify(at.needed <= at.free, ErrorKind::configuration,
             "the ranks on {} need {} together, and {} are free there; {}", name, format_bytes(at.needed),
             format_bytes(at.free), advice);
    }
  });
}

}  // namespace megatron
