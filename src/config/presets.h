// Sizes of published models, for model.preset. Data only; explicit keys of the input file override them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/config.h"

namespace megatron {

struct ModelPreset {
  std::string_view name;
  ModelConfig model;  ///< with the published sequence length as max_position_embeddings; no vocabulary
  std::string_view note;
};

std::span<const ModelPreset> model_presets();
/// For messages: where to read their names.
inline constexpr const char* kPresetList = "inputs/README.md and `man megatron_train` list the presets";

/// The preset of this name, or of another that is in use for the same model ("gpt2", "meta-llama/Llama-2-7b-hf");
/// nullptr if there is none.
const ModelPreset* find_preset(std::string_view name);

/// The name of the preset that a misspelt name is nearest to; empty if none is near.
std::string suggest_preset(std::string_view name);

/// Whether presets decide this key of [model]: all but the vocabulary and choices of the training (dropout, init_std).
bool set_by_presets(std::string_view key);

/// Sets all of `model` to the preset's.
void apply_preset(const ModelPreset& preset, ModelConfig& model);

}  // namespace megatron
