#include "config/schema/layer_split.h"

#include "base/core/error.h"

namespace megatron {

std::vector<std::int64_t> layers_per_chunk(const ModelConfig& model, const ParallelConfig& parallel) {
  if (!parallel.layers_per_stage.empty()) return parallel.layers_per_stage;
  const std::int64_t chunks = parallel.pipeline * parallel.virtual_stages;
  const std::int64_t each = exact_division(model.all_layers(), chunks, "layers over pipeline stages and their chunks");
  return std::vector<std::int64_t>(static_cast<std::size_t>(chunks), each);
}

int stage_of_layer(const ModelConfig& model, const ParallelConfig& parallel, std::int64_t layer) {
  const std::vector<std::int64_t> split = layers_per_chunk(model, parallel);
  std::int64_t end = 0;
  for (std::size_t chunk = 0; chunk < split.size(); ++chunk) {
    end += split[chunk];
    if (layer < end) return static_cast<int>(chunk % static_cast<std::size_t>(parallel.pipeline));
  }
  fail(ErrorKind::internal, "layer {} of a model with {}", layer, end);
}

}  // namespace megatron
