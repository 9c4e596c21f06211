// How a model's layers are cut into the chunks that pipeline stages hold. Pure functions of the configuration.
#pragma once

#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Layers of each model chunk in the order of the model: parallel.layers_per_stage, or evenly. Chunk c of stage r is
/// the (c · stages + r)-th. Of an encoder-decoder the encoder's layers come first. Error(internal) where they do not
/// divide evenly: the rules refuse that.
std::vector<std::int64_t> layers_per_chunk(const ModelConfig& model, const ParallelConfig& parallel);
/// The stage that holds a layer, counted from 0 over the whole model.
int stage_of_layer(const ModelConfig& model, const ParallelConfig& parallel, std::int64_t layer);

}  // namespace megatron
