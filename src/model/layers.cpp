#include "model/layers.h"

#include <numeric>

#include "base/error.h"

namespace megatron {

std::vector<std::int64_t> layers_per_chunk(const ModelConfig& model, const ParallelConfig& parallel) {
  if (!parallel.layers_per_stage.empty()) return parallel.layers_per_stage;
  const std::int64_t chunks = parallel.pipeline * parallel.virtual_stages;
  const std::int64_t each = exact_division(model.layers, chunks, "layers over pipeline stages and their chunks");
  return std::vector<std::int64_t>(static_cast<std::size_t>(chunks), each);
}

ModelChunk chunk_at(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid, int chunk) {
  const std::vector<std::int64_t> split = layers_per_chunk(model, parallel);
  const auto at = static_cast<std::size_t>(chunk * grid.shape().pipeline + grid.at().pipeline);
  const auto own = split.begin() + static_cast<std::ptrdiff_t>(at);
  return {.first_layer = std::accumulate(split.begin(), own, std::int64_t{0}),
          .layers = *own,
          .first = at == 0,
          .last = at + 1 == split.size()};
}

std::int64_t recomputed_layers(const ModelConfig& model, const ParallelConfig& parallel,
                               const RecomputeConfig& recompute) {
  std::int64_t sum = 0;
  for (const std::int64_t layers : layers_per_chunk(model, parallel)) sum += recompute.of_chunk(layers);
  return sum;
}

}  // namespace megatron
