#include "training/step/grid.h"

#include <algorithm>

#include "models/families/family.h"
#include "training/optimizer/parameter_groups.h"

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
  return config.optimizer.distributed ? all_copies(shape) : Shards{};
}

std::int64_t bucket_elements(const Config& config, const ParameterStore& store, const Shards& shards) {
  constexpr std::int64_t fewest_buckets = 8;
  const ParameterGroups groups(config);
  std::int64_t largest = 0;
  for (const Parameter& parameter : store.all()) {
    if (groups.of(parameter).rule->update_matrix != nullptr)
      largest = std::max(largest, parameter.global_shape.elements());
  }
  if (shards.dense == 1 || largest == 0) return ParameterStore::kBucketElements;
  const std::int64_t most = std::max(ParameterStore::kBucketElements, store.parameter_elements() / fewest_buckets);
  return std::clamp(largest * shards.dense, ParameterStore::kBucketElements, most);
}

}  // namespace megatron
