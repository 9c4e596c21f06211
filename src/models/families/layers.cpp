#include "models/families/layers.h"

#include <algorithm>
#include <numeric>

namespace megatron {

ModelChunk chunk_at(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid, int chunk) {
  const std::vector<std::int64_t> split = layers_per_chunk(model, parallel);
  const auto at = static_cast<std::size_t>(chunk * grid.shape().pipeline + grid.at().pipeline);
  const auto own = split.begin() + static_cast<std::ptrdiff_t>(at);
  return {.first_layer = std::accumulate(split.begin(), own, std::int64_t{0}),
          .layers = *own,
          .first = at == 0,
          .last = at + 1 == split.size()};
}

RecomputedLayers recomputed_layers(const ModelConfig& model, const ParallelConfig& parallel,
                                   const RecomputeConfig& recompute) {
  RecomputedLayers sum;
  sum.first_products_alone = recompute.parts_made().has(RecomputePart::feed_forward);
  std::int64_t first = 0;
  for (const std::int64_t layers : layers_per_chunk(model, parallel)) {
    const std::int64_t recomputed = sum.first_products_alone ? layers : recompute.of_chunk(layers);
    const std::int64_t before_decoder = std::clamp<std::int64_t>(model.layers - first, 0, recomputed);
    sum.layers += before_decoder;
    sum.decoder_layers += recomputed - before_decoder;
    first += layers;
  }
  return sum;
}

}  // namespace megatron
