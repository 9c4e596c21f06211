#include "config/presets.h"

#include <string>
#include <vector>

namespace megatron {

namespace {

ModelConfig gpt(std::int64_t layers, std::int64_t hidden_size, std::int64_t heads, std::int64_t sequence_length) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = hidden_size;
  model.attention_heads = heads;
  model.sequence_length = model.max_position_embeddings = sequence_length;
  return model;
}

ModelConfig llama(const ModelConfig& sizes, std::int64_t query_groups, std::int64_t ffn_hidden_size,
                  double rotary_base) {
  ModelConfig model = sizes;
  model.query_groups = query_groups;
  model.ffn_hidden_size = ffn_hidden_size;
  model.position_embedding = "rope";
  model.rotary_base = rotary_base;
  model.activation = "swiglu";
  model.normalization = "rmsnorm";
  model.tie_embeddings = model.bias = false;
  model.hidden_dropout = model.attention_dropout = 0;
  return model;
}

}  // namespace

std::span<const ModelPreset> model_presets() {
  static const std::vector<ModelPreset> presets = {
      {"gpt2-small", gpt(12, 768, 12, 1024), "124M parameters"},
      {"gpt2-124m", gpt(12, 768, 12, 1024), "the same"},
      {"gpt2-medium", gpt(24, 1024, 16, 1024), "345M or 355M parameters, depending on who counts"},
      {"gpt2-345m", gpt(24, 1024, 16, 1024), "the same"},
      {"gpt2-large", gpt(36, 1280, 20, 1024), "774M parameters"},
      {"gpt2-xl", gpt(48, 1600, 25, 1024), "1.56B parameters"},
      {"gpt3-1.3b", gpt(24, 2048, 16, 2048), "1.3B parameters"},
      {"gpt3-2.7b", gpt(32, 2560, 32, 2048), "2.7B parameters"},
      {"gpt3-6.7b", gpt(32, 4096, 32, 2048), "6.7B parameters"},
      {"gpt3-13b", gpt(40, 5120, 40, 2048), "13B parameters"},
      {"gpt3-39b", gpt(48, 8192, 64, 2048), "39B parameters, of Megatron-LM's scaling study"},
      {"gpt3-175b", gpt(96, 12288, 96, 2048), "175B parameters"},
      {"tinyllama-1.1b", llama(gpt(22, 2048, 32, 2048), 4, 5632, 10000), "1.1B parameters with 32000 tokens"},
      {"llama2-7b", llama(gpt(32, 4096, 32, 4096), 32, 11008, 10000), "6.7B parameters with 32000 tokens"},
      {"llama2-13b", llama(gpt(40, 5120, 40, 4096), 40, 13824, 10000), "13B parameters with 32000 tokens"},
      {"llama2-70b", llama(gpt(80, 8192, 64, 4096), 8, 28672, 10000), "69B parameters with 32000 tokens"},
      {"llama3-8b", llama(gpt(32, 4096, 32, 8192), 8, 14336, 500000), "8.0B parameters with 128256 tokens"},
      {"llama3-70b", llama(gpt(80, 8192, 64, 8192), 8, 28672, 500000), "70.6B parameters with 128256 tokens"},
  };
  return presets;
}

const ModelPreset* find_preset(std::string_view name) {
  for (const ModelPreset& preset : model_presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

void apply_preset(const ModelPreset& preset, ModelConfig& model) {
  model = preset.model;
  model.preset = std::string(preset.name);
}

}  // namespace megatron
