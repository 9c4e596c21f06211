#include "config/parse/presets.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/core/error.h"
#include "base/text/shipped_file.h"
#include "config/parse/read_value.h"
#include "config/schema/suggestions.h"

namespace megatron {

const std::vector<ShippedFile>& shipped_presets();  // made by CMake

namespace {

/// Without what spellings of one name differ in: "meta-llama/Meta-Llama-3-8B" and "llama3-8b" are both "llama38b".
/// Points stay: 1.3b is not 13b.
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

const toml::array& tables_of(const toml::table& table, const char* name) {
  const toml::array* tables = table[name].as_array();
  internal_check(tables != nullptr && tables->is_homogeneous(toml::node_type::table), name);
  return *tables;
}

/// Keys of [model], and of [moe] in a table of this name. Others are the preset's own.
void read_keys(const toml::table& keys, std::string_view table, Config& config) {
  constexpr std::string_view others[] = {"name", "other_names", "note", "presets"};
  for (auto&& [name, node] : keys) {
    const std::string_view word = name.str();
    if (std::find(std::begin(others), std::end(others), word) != std::end(others)) continue;
    if (word == "moe" && node.is_table()) {
      read_keys(*node.as_table(), word, config);
      continue;
    }
    const Key* key = find_key(table, word);
    const std::string problem = key == nullptr ? fmt::format("{}: no such key", word) : read_value(node, *key, config);
    internal_check(problem.empty(), problem.c_str());
  }
}

ModelPreset read_preset(const toml::table& own, Config config) {
  read_keys(own, "model", config);
  config.model.max_position_embeddings = config.model.sequence_length;
  ModelPreset preset{own["name"].value_or(std::string()), own["note"].value_or(std::string()), config.model, {}};
  preset.plain_names.push_back(plain_name(preset.name));
  if (const toml::array* names = own["other_names"].as_array()) {
    for (const toml::node& name : *names) preset.plain_names.push_back(plain_name(name.value_or(std::string_view())));
  }
  return preset;
}

std::vector<ModelPreset> read_presets() {
  std::vector<ModelPreset> presets;
  for (const ShippedFile& file : shipped_presets()) {
    const toml::table document = toml::parse(file.text);
    for (const toml::node& series : tables_of(document, "series")) {
      Config common;
      read_keys(*series.as_table(), "model", common);
      for (const toml::node& preset : tables_of(*series.as_table(), "presets")) {
        presets.push_back(read_preset(*preset.as_table(), common));
      }
    }
  }
  return presets;
}

}  // namespace

std::span<const ModelPreset> model_presets() {
  static const std::vector<ModelPreset> presets = read_presets();
  return presets;
}

const ModelPreset* find_preset(std::string_view name) {
  const std::string word = plain_name(name);
  for (const ModelPreset& preset : model_presets()) {
    if (std::find(preset.plain_names.begin(), preset.plain_names.end(), word) != preset.plain_names.end()) {
      return &preset;
    }
  }
  return nullptr;
}

std::string suggest_preset(std::string_view name) {
  std::vector<std::string> plain;
  for (const ModelPreset& preset : model_presets()) plain.push_back(preset.plain_names.front());
  const ModelPreset* nearest = find_preset(suggest_choice(plain_name(name), plain));
  return nearest == nullptr ? "" : nearest->name;
}

bool set_by_presets(std::string_view key) {
  constexpr std::string_view others[] = {"preset",           "vocab_size",     "vocab_multiple",
                                         "hidden_dropout",   "init_std",       "attention_dropout",
                                         "base_hidden_size", "base_head_size", "head_chunks"};
  return std::find(std::begin(others), std::end(others), key) == std::end(others);
}

void apply_preset(const ModelPreset& preset, ModelConfig& model) {
  model = preset.model;
  model.preset = preset.name;
}

Config with_preset_alone(const Config& config) {
  Config result;
  if (const ModelPreset* preset = find_preset(config.model.preset)) apply_preset(*preset, result.model);
  return result;
}

}  // namespace megatron
