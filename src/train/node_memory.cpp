#include "train/node_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/memory_usage.h"
#include "comm/agreement.h"
#include "train/report.h"

namespace megatron {

void require_node_memory(Communicator& world, const std::string& host, std::size_t needed, const std::string& advice) {
  nlohmann::json mine = {{"host", host}, {"needed", needed}};
  if (const std::optional<std::size_t> free = free_memory_bytes()) mine["free"] = *free;
  const std::vector<std::string> ranks = world.gather_texts(mine.dump(), 0);
  agree(world, [&] {
    struct Node {
      double needed = 0, free = std::numeric_limits<double>::infinity();
    };
    std::map<std::string, Node> nodes;
    for (const std::string& text : ranks) {
      const auto rank = nlohmann::json::parse(text);
      Node& node = nodes[rank.at("host")];
      node.needed += rank.at("needed").get<double>();
      node.free = std::min(node.free, rank.value("free", node.free));
    }
    for (const auto& [name, node] : nodes) {
      verify(node.needed <= node.free, ErrorKind::configuration,
             "the ranks on {} need {} together, and {} are free there; {}", name, format_bytes(node.needed),
             format_bytes(node.free), advice);
    }
  });
}

}  // namespace megatron
