#include "train/grid.h"

#include <algorithm>

namespace megatron {

GridShape grid_shape(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return {.tensor = static_cast<int>(parallel.tensor),
          .context = static_cast<int>(parallel.context),
          .data = static_cast<int>(parallel.data),
          .pipeline = static_cast<int>(parallel.pipeline),
          .kv_replicas = static_cast<int>(std::max<std::int64_t>(1, parallel.tensor / config.model.query_groups))};
}

}  // namespace megatron
