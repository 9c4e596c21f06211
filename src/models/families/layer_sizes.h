// Sizes of the layers of src/models, as ModelConfig names them: for every family whose layers these are.
#pragma once

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/block.h"
#include "models/layers/embedding.h"

namespace megatron {

/// Whether a token sees those after it.
enum class Sight { earlier, all };

NormSizes norm_sizes(const ModelConfig& model);
/// With the experts of those layers that have them; `own_terms` are the terms of the model's loss in front of theirs.
BlockSizes block_sizes(const ModelConfig& model, const ProcessGrid& grid, Sight sight, int own_terms = 1);
/// Standard deviations of initial weights by model.init_std, as the width asks: of hidden matrices, and of outputs that
/// have no factor as logits of tokens have one.
double hidden_deviation(const ModelConfig& model);
double output_deviation(const ModelConfig& model);
/// Factor of what the logits of tokens are made of.
double head_scale(const ModelConfig& model);
/// Without types.
EmbeddingSizes embedding_sizes(const ModelConfig& model);

}  // namespace megatron
