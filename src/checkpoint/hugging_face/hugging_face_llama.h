// Shared by the Hugging Face families of Llama's form, for the files that have their rows.
#pragma once

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

ModelConfig llama_form();
HuggingFaceSizes llama_sizes();
HuggingFaceNames llama_names();
HuggingFaceNames with_head_norms(HuggingFaceNames names);

// The rest of config.json: the window of all layers, and rotations.
void read_mistral(const HuggingFaceKeys& keys, ModelConfig& model);
void write_mistral(const ModelConfig& model, nlohmann::json& config);

/// Where Qwen's windows are by a config.json without "layer_types".
enum class QwenWindow {
  upper_layers,       ///< in those from max_window_layers on
  all_layers,         ///< whatever "layer_types" says, which has no effect
  another_by_version  ///< transformers 4 and 5 disagree
};
void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& model, QwenWindow where);
void write_qwen_window(const ModelConfig& model, nlohmann::json& config);
void read_qwen3(const HuggingFaceKeys& keys, ModelConfig& model, QwenWindow where);
void write_qwen3(const ModelConfig& model, nlohmann::json& config);

}  // namespace megatron
