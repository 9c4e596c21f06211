// How a model's layers are cut into the chunks that pipeline ranks hold.
#pragma once

#include <vector>

#include "comm/process_grid.h"
#include "config/config.h"

namespace megatron {

/// Layers of each model chunk in the order of the model: parallel.layers_per_stage, or evenly. Chunk c of stage r is
/// the (c · stages + r)-th.
std::vector<std::int64_t> layers_per_chunk(const ModelConfig& model, const ParallelConfig& parallel);
/// Of the whole model's layers, those of one chunk.
struct ModelChunk {
  std::int64_t first_layer = 0, layers = 0;
  bool first = false, last = false;  ///< with what comes before and after all layers
};
ModelChunk chunk_at(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid, int chunk);
/// Layers of the whole model that a backward computes again: the first recompute.layers of each model chunk.
std::int64_t recomputed_layers(const ModelConfig& model, const ParallelConfig& parallel,
                               const RecomputeConfig& recompute);

}  // namespace megatron
