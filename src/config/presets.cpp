#include "config/presets.h"

#include <array>
#include <string>

namespace megatron {

std::span<const ModelPreset> model_presets() {
  static constexpr std::array<ModelPreset, 12> presets = {{
      {"gpt2-small", 12, 768, 12, 1024, "124M parameters"},
      {"gpt2-124m", 12, 768, 12, 1024, "the same"},
      {"gpt2-medium", 24, 1024, 16, 1024, "345M or 355M parameters, depending on who counts"},
      {"gpt2-345m", 24, 1024, 16, 1024, "the same"},
      {"gpt2-large", 36, 1280, 20, 1024, "774M parameters"},
      {"gpt2-xl", 48, 1600, 25, 1024, "1.56B parameters"},
      {"gpt3-1.3b", 24, 2048, 16, 2048, "1.3B parameters"},
      {"gpt3-2.7b", 32, 2560, 32, 2048, "2.7B parameters"},
      {"gpt3-6.7b", 32, 4096, 32, 2048, "6.7B parameters"},
      {"gpt3-13b", 40, 5120, 40, 2048, "13B parameters"},
      {"gpt3-39b", 48, 8192, 64, 2048, "39B parameters, of Megatron-LM's scaling study"},
      {"gpt3-175b", 96, 12288, 96, 2048, "175B parameters"},
  }};
  return presets;
}

const ModelPreset* find_preset(std::string_view name) {
  for (const ModelPreset& preset : model_presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

void apply_preset(const ModelPreset& preset, ModelConfig& model) {
  model.preset = std::string(preset.name);
  model.layers = preset.layers;
  model.hidden_size = preset.hidden_size;
  model.attention_heads = preset.attention_heads;
  model.sequence_length = preset.sequence_length;
  model.max_position_embeddings = preset.sequence_length;
}

}  // namespace megatron
