// Sizes of published models, for model.preset: those of inputs/presets. Explicit keys of the input file override them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

struct ModelPreset {
  std::string name, note;
  ModelConfig model;                     ///< without a vocabulary
  std::vector<std::string> plain_names;  ///< its name and others in use, without what spellings differ in
};

std::span<const ModelPreset> model_presets();
/// For messages: where to read their names.
inline constexpr const char* kPresetList = "inputs/README.md lists the presets";

/// The preset of this name, or of another that is in use for the same model ("gpt2", "meta-llama/Llama-2-7b-hf");
/// nullptr if there is none.
const ModelPreset* find_preset(std::string_view name);

/// The name of the preset that a misspelt name is nearest to; empty if none is near.
std::string suggest_preset(std::string_view name);

/// Whether presets decide this key of [model]: all but the vocabulary and choices of the training (dropout, init_std,
/// head_chunks).
bool set_by_presets(std::string_view key);

/// Sets all of `model` to the preset's.
void apply_preset(const ModelPreset& preset, ModelConfig& model);

/// The values of a file that gives nothing but model.preset, if `config` has one: what print_given() leaves out.
Config with_preset_alone(const Config& config);

/// The whole of inputs/README.md: every key with type, default, unit and constraint, presets, and what training
/// refuses.
std::string config_reference();

}  // namespace megatron
