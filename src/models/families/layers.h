// The part of a model's layers that one chunk of a pipeline rank holds.
#pragma once

#include "config/schema/layer_split.h"
#include "distributed/comm/process_grid.h"
#include "models/families/flops.h"

namespace megatron {

/// The layers of one chunk, among those of the whole model.
struct ModelChunk {
  std::int64_t first_layer = 0, layers = 0;  ///< an encoder-decoder's encoder has the first of all layers
  bool first = false, last = false;          ///< with what comes before and after all layers
};
ModelChunk chunk_at(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid, int chunk);
/// Layers of the whole model that a backward computes again: the first recompute.layers of each model chunk, or of all
/// the feed-forward part's first product.
RecomputedLayers recomputed_layers(const ModelConfig& model, const ParallelConfig& parallel,
                                   const RecomputeConfig& recompute);

}  // namespace megatron
