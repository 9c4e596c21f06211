// Sizes of published models, for model.preset. Data only; explicit keys of the input file override them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "config/config.h"

namespace megatron {

struct ModelPreset {
  std::string_view name;
  std::int64_t layers, hidden_size, attention_heads, sequence_length;
  std::string_view note;
};

std::span<const ModelPreset> model_presets();

/// The preset of this name, or nullptr.
const ModelPreset* find_preset(std::string_view name);

/// Sets the preset's sizes, its name, and max_position_embeddings to the published sequence length.
void apply_preset(const ModelPreset& preset, ModelConfig& model);

}  // namespace megatron
