#include "training/step/grid.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "distributed/comm/group_members.h"
#include "models/families/family.h"

namespace megatron {

GridShape grid_shape(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return {.tensor = static_cast<int>(parallel.tensor),
          .context = static_cast<int>(parallel.context),
          .data = static_cast<int>(parallel.data),
          .pipeline = static_cast<int>(parallel.pipeline),
          .kv_replicas = static_cast<int>(std::max<std::int64_t>(1, parallel.tensor / config.model.query_groups)),
          .expert = static_cast<int>(parallel.expert),
          .replicas = static_cast<int>(config.optimizer.sets_that_share(parallel.context * parallel.data)),
          .ties = family_of(config.model).ties(config)};
}

Shards optimizer_shards(const Config& config, const GridShape& shape) {
  if (!config.optimizer.shares().state) return {};
  Shards shards = shards_of(shape);
  shards.gradients = config.optimizer.shares().gradients;
  shards.weights = config.optimizer.shares().weights;
  return shards;
}

std::string sets_on_hosts_warning(const Config& config, const std::vector<std::string>& hosts) {
  const GridShape shape = grid_shape(config);
  if (shape.replicas == 1) return "";
  const std::vector<int> colours = *colours_of_group(shape, name_of(Group::shards));
  std::map<int, std::vector<int>> sets;
  for (std::size_t rank = 0; rank < colours.size(); ++rank) sets[colours[rank]].push_back(static_cast<int>(rank));
  for (const auto& [first, ranks] : sets) {
    std::set<std::string> of_set;
    for (const int rank : ranks) of_set.insert(hosts[static_cast<std::size_t>(rank)]);
    if (of_set.size() == 1) continue;
    return fmt::format(
        "optimizer.share_within = {}: ranks {} share and are on hosts {}, so that what they gather goes over the "
        "network; share within the ranks of one host",
        config.optimizer.share_within, fmt::join(ranks, ", "), fmt::join(of_set, ", "));
  }
  return "";
}

}  // namespace megatron
