#include "training/step/grid.h"

#include <algorithm>

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
          .ties = family_of(config.model).ties(config)};
}

Shards optimizer_shards(const Config& config, const GridShape& shape) {
  if (!config.optimizer.shares().state) return {};
  Shards shards = all_copies(shape);
  shards.gradients = config.optimizer.shares().gradients;
  shards.weights = config.optimizer.shares().weights;
  return shards;
}

}  // namespace megatron
