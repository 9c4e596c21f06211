// Sizes of the layers of src/nn, as ModelConfig names them: for every family whose layers these are.
#pragma once

#include "config/config.h"
#include "nn/block.h"
#include "nn/embedding.h"

namespace megatron {

/// Whether a token sees those after it.
enum class Sight { earlier, all };

NormSizes norm_sizes(const ModelConfig& model);
BlockSizes block_sizes(const ModelConfig& model, Sight sight);
/// Without types.
EmbeddingSizes embedding_sizes(const ModelConfig& model);

}  // namespace megatron
