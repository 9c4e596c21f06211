#include "config/presets.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <vector>

#include "config/suggestions.h"

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
  model.bias = model.tie_embeddings = false;
  model.hidden_dropout = model.attention_dropout = 0;
  return model;
}

template <class Change>
ModelConfig changed(ModelConfig model, const Change& change) {
  change(model);
  return model;
}

ModelConfig mistral_7b() {
  return changed(llama(gpt(32, 4096, 32, 32768), 8, 14336, 10000),
                 [](ModelConfig& model) { model.attention_window = 4096; });
}

ModelConfig mixtral(const ModelConfig& sizes, std::int64_t ffn_hidden_size) {
  return changed(llama(sizes, 8, ffn_hidden_size, 1e6), [](ModelConfig& model) {
    model.moe.experts = 8;
    model.moe.drop = "none";
    model.moe.balance_coefficient = 0.02;
  });
}

ModelConfig qwen2(const ModelConfig& sizes, std::int64_t query_groups, std::int64_t ffn_hidden_size, bool tied) {
  return changed(llama(sizes, query_groups, ffn_hidden_size, 1e6), [&](ModelConfig& model) {
    model.norm_epsilon = 1e-6;
    model.bias = {true, false, false};
    model.tie_embeddings = tied;
  });
}

ModelConfig qwen3(const ModelConfig& sizes, std::int64_t ffn_hidden_size, bool tied) {
  return changed(qwen2(sizes, 8, ffn_hidden_size, tied), [&](ModelConfig& model) {
    model.bias = false;
    model.query_key_norm = true;
    if (model.head_size() != 128) model.given_head_size = 128;
  });
}

ModelConfig gemma(const ModelConfig& sizes, std::int64_t query_groups, std::int64_t ffn_hidden_size) {
  return changed(llama(sizes, query_groups, ffn_hidden_size, 10000), [](ModelConfig& model) {
    model.norm_epsilon = 1e-6;
    model.activation = "geglu";
    if (model.head_size() != 256) model.given_head_size = 256;
    model.tie_embeddings = model.scale_embeddings = true;
  });
}

ModelConfig opt(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) {
    model.activation = "relu";
    model.attention_dropout = 0;
  });
}

ModelConfig pythia(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) {
    model.position_embedding = "rope";
    model.rotary_fraction = 0.25;
    model.activation = "gelu_exact";
    model.residual = "parallel";
    model.tie_embeddings = false;
    model.hidden_dropout = model.attention_dropout = 0;
  });
}

ModelConfig bloom(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) {
    model.position_embedding = "alibi";
    model.embedding_norm = true;
    model.hidden_dropout = model.attention_dropout = 0;
  });
}

// As of Hugging Face: normalization after each part.
ModelConfig bert(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) {
    model.family = "bert";
    model.norm_position = "post";
    model.norm_epsilon = 1e-12;
    model.activation = "gelu_exact";
    model.embedding_norm = true;
  });
}

ModelConfig megatron_bert(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) { model.family = "bert"; });
}

// The original, whose feed-forward part is four times as wide as the hidden states unless it is given.
ModelConfig t5(const ModelConfig& sizes, std::int64_t ffn_hidden_size, std::int64_t head_size = 64) {
  return changed(sizes, [&](ModelConfig& model) {
    model.family = "t5";
    model.decoder_layers = model.layers;
    model.decoder_sequence_length = 128;
    if (model.head_size() != head_size) model.given_head_size = head_size;
    model.ffn_hidden_size = ffn_hidden_size;
    model.position_embedding = "relative";
    model.normalization = "rmsnorm";
    model.norm_epsilon = 1e-6;
    model.activation = "relu";
    model.bias = false;
    model.attention_scale = "none";
    model.scale_head = true;
  });
}

// Version 1.1, of Flan-T5 and mT5 too.
ModelConfig gated_t5(const ModelConfig& sizes, std::int64_t ffn_hidden_size) {
  return changed(t5(sizes, ffn_hidden_size), [](ModelConfig& model) {
    model.activation = "geglu";
    model.tie_embeddings = model.scale_head = false;
  });
}

ModelConfig megatron_t5(const ModelConfig& sizes) {
  return changed(sizes, [](ModelConfig& model) {
    model.family = "t5";
    model.decoder_layers = model.layers;
    model.decoder_sequence_length = 128;
    model.head_bias = true;
  });
}

struct PresetAlias {
  std::string_view theirs, ours;  // the first as plain_name() writes it
};
constexpr PresetAlias kPresetAliases[] = {{"gpt2", "gpt2-124m"},
                                          {"gpt2117m", "gpt2-124m"},
                                          {"gpt2355m", "gpt2-medium"},
                                          {"gpt2774m", "gpt2-large"},
                                          {"gpt21.5b", "gpt2-xl"},
                                          {"gpt21558m", "gpt2-xl"},
                                          {"gpt3", "gpt3-175b"},
                                          {"gpt3xl", "gpt3-1.3b"},
                                          {"tinyllama", "tinyllama-1.1b"},
                                          {"bertbaseuncased", "bert-base"},
                                          {"bertlargeuncased", "bert-large"},
                                          {"megatronbert", "megatron-bert-345m"},
                                          {"flant5small", "t5-v1_1-small"},
                                          {"flant5base", "t5-v1_1-base"},
                                          {"flant5large", "t5-v1_1-large"},
                                          {"flant5xl", "t5-v1_1-xl"},
                                          {"flant5xxl", "t5-v1_1-xxl"}};

// Without what spellings of one name differ in: "meta-llama/Meta-Llama-3-8B" and "llama3-8b" are both "llama38b".
// Points stay: 1.3b is not 13b.
std::string plain_name(std::string_view name) {
  name.remove_prefix(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1);
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (plain.starts_with("meta")) plain.erase(0, 4);
  if (const std::size_t version = plain.rfind("v0."); version != plain.npos) plain.resize(version);  // Mistral's
  if (plain.ends_with("hf")) plain.resize(plain.size() - 2);
  return plain;
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
      {"mistral-7b", mistral_7b(), "7.2B parameters with 32000 tokens"},
      {"mixtral-8x7b", mixtral(gpt(32, 4096, 32, 32768), 14336),
       "46.7B parameters with 32000 tokens: 8 experts, 2 of them per token"},
      {"mixtral-8x22b", mixtral(gpt(56, 6144, 48, 65536), 16384),
       "141B parameters with 32768 tokens: 8 experts, 2 of them per token"},
      {"qwen2.5-0.5b", qwen2(gpt(24, 896, 14, 32768), 2, 4864, true), "494M parameters with 151936 tokens"},
      {"qwen2.5-7b", qwen2(gpt(28, 3584, 28, 131072), 4, 18944, false), "7.6B parameters with 152064 tokens"},
      {"qwen3-0.6b", qwen3(gpt(28, 1024, 16, 32768), 3072, true), "596M parameters with 151936 tokens"},
      {"qwen3-8b", qwen3(gpt(36, 4096, 32, 32768), 12288, false), "8.2B parameters with 151936 tokens"},
      {"gemma-2b", gemma(gpt(18, 2048, 8, 8192), 1, 16384), "2.5B parameters with 256000 tokens"},
      {"gemma-7b", gemma(gpt(28, 3072, 16, 8192), 16, 24576), "8.5B parameters with 256000 tokens"},
      {"opt-125m", opt(gpt(12, 768, 12, 2048)), "125M parameters with 50272 tokens"},
      {"opt-1.3b", opt(gpt(24, 2048, 32, 2048)), "1.3B parameters with 50272 tokens"},
      {"pythia-160m", pythia(gpt(12, 768, 12, 2048)), "162M parameters with 50304 tokens"},
      {"pythia-1.4b", pythia(gpt(24, 2048, 16, 2048)), "1.4B parameters with 50304 tokens"},
      {"bloom-560m", bloom(gpt(24, 1024, 16, 2048)), "559M parameters with 250880 tokens"},
      {"bert-base", bert(gpt(12, 768, 12, 512)), "110M parameters with 30522 tokens"},
      {"bert-large", bert(gpt(24, 1024, 16, 512)), "336M parameters with 30522 tokens"},
      {"megatron-bert-345m", megatron_bert(gpt(24, 1024, 16, 512)), "334M parameters with 29056 tokens"},
      {"t5-small", t5(gpt(6, 512, 8, 512), 2048), "60.5M parameters with 32128 tokens"},
      {"t5-base", t5(gpt(12, 768, 12, 512), 3072), "223M parameters with 32128 tokens"},
      {"t5-large", t5(gpt(24, 1024, 16, 512), 4096), "738M parameters with 32128 tokens"},
      {"t5-3b", t5(gpt(24, 1024, 32, 512), 16384, 128), "2.85B parameters with 32128 tokens"},
      {"t5-11b", t5(gpt(24, 1024, 128, 512), 65536, 128), "11.3B parameters with 32128 tokens"},
      {"t5-v1_1-small", gated_t5(gpt(8, 512, 6, 512), 1024), "77M parameters with 32128 tokens"},
      {"t5-v1_1-base", gated_t5(gpt(12, 768, 12, 512), 2048), "248M parameters with 32128 tokens"},
      {"t5-v1_1-large", gated_t5(gpt(24, 1024, 16, 512), 2816), "783M parameters with 32128 tokens"},
      {"t5-v1_1-xl", gated_t5(gpt(24, 2048, 32, 512), 5120), "2.85B parameters with 32128 tokens"},
      {"t5-v1_1-xxl", gated_t5(gpt(24, 4096, 64, 512), 10240), "11.1B parameters with 32128 tokens"},
      {"mt5-small", gated_t5(gpt(8, 512, 6, 1024), 1024), "300M parameters with 250112 tokens"},
      {"mt5-base", gated_t5(gpt(12, 768, 12, 1024), 2048), "582M parameters with 250112 tokens"},
      {"mt5-large", gated_t5(gpt(24, 1024, 16, 1024), 2816), "1.23B parameters with 250112 tokens"},
      {"mt5-xl", gated_t5(gpt(24, 2048, 32, 1024), 5120), "3.74B parameters with 250112 tokens"},
      {"mt5-xxl", gated_t5(gpt(24, 4096, 64, 1024), 10240), "12.9B parameters with 250112 tokens"},
      {"megatron-t5-220m", megatron_t5(gpt(12, 768, 12, 512)), "222M parameters with 30624 tokens"},
  };
  return presets;
}

const ModelPreset* find_preset(std::string_view name) {
  const std::string word = plain_name(name);
  const auto alias = std::find_if(std::begin(kPresetAliases), std::end(kPresetAliases),
                                  [&](const PresetAlias& candidate) { return candidate.theirs == word; });
  const std::string wanted = alias != std::end(kPresetAliases) ? plain_name(alias->ours) : word;
  for (const ModelPreset& preset : model_presets()) {
    if (plain_name(preset.name) == wanted) return &preset;
  }
  return nullptr;
}

std::string suggest_preset(std::string_view name) {
  std::vector<std::string> names, plain;
  for (const ModelPreset& preset : model_presets()) {
    names.emplace_back(preset.name);
    plain.push_back(plain_name(preset.name));
  }
  const std::string nearest = suggest_choice(plain_name(name), plain);
  const auto found = std::find(plain.begin(), plain.end(), nearest);
  return found == plain.end() ? "" : names[static_cast<std::size_t>(found - plain.begin())];
}

bool set_by_presets(std::string_view key) {
  constexpr std::string_view others[] = {"preset",         "vocab_size",        "vocab_multiple",
                                         "hidden_dropout", "attention_dropout", "init_std"};
  return std::find(std::begin(others), std::end(others), key) == std::end(others);
}

void apply_preset(const ModelPreset& preset, ModelConfig& model) {
  model = preset.model;
  model.preset = std::string(preset.name);
}

}  // namespace megatron
