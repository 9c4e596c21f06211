// Sizes of published models, for model.preset. Data only; explicit keys of the input file override them.
#pragma once

#include <span>
#include <string_view>

#include "config/config.h"

namespace megatron {

struct ModelPreset {
  std::string_view name;
  ModelConfig model;  ///< with the published sequence length as max_position_embeddings; no vocabulary
  std::string_view note;
};

std::span<const ModelPreset> model_presets();

/// The preset of this name, or nullptr.
const ModelPreset* find_preset(std::string_view name);

/// Sets all of `model` to the preset's.
void apply_preset(const ModelPreset& preset, ModelConfig& model);

}  // namespace megatron
