// The word table of a family with one stream, which the first chunk looks up in and, where it is tied, the last one's
// head multiplies with.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

/// The stages with copies of the word table, where it is tied and they are two. See ModelFamily.
std::vector<std::vector<int>> word_table_ties(const Config& config);

/// Declares embedding.word.weight. Where the stages that use it are two ranks it is one parameter in two copies: the
/// first chunk's counts, the gradients of both are summed.
int declare_word_table(ParameterBuilder& builder, const ModelConfig& model, const ProcessGrid& grid);
/// Declares head.weight, of a model that is not tied.
int declare_head_table(ParameterBuilder& builder, const ModelConfig& model);

}  // namespace megatron
