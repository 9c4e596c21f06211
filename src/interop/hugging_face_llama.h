// What Hugging Face families of Llama's form share, for the files that have their rows.
#pragma once

#include "interop/hugging_face_families.h"

namespace megatron {

ModelConfig llama_form();
HuggingFaceSizes llama_sizes(std::int64_t groups_if_absent, std::int64_t head_size_if_absent);
HuggingFaceNames llama_names();
HuggingFaceNames with_head_norms(HuggingFaceNames names);

// The rest of config.json: the window of all layers, and rotations.
void read_mistral(const HuggingFaceKeys& keys, ModelConfig& model);
void write_mistral(const ModelConfig& model, nlohmann::json& config);
void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& model);
void write_qwen_window(const ModelConfig& model, nlohmann::json& config);
void read_qwen3(const HuggingFaceKeys& keys, ModelConfig& model);
void write_qwen3(const ModelConfig& model, nlohmann::json& config);

}  // namespace megatron
