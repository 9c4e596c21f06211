// config_reference(): inputs/README.md from the schema.
#include <fmt/format.h>

#include "config/parse/presets.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"

namespace megatron {
namespace {

std::string in_table(std::string text) {  // a bar would end the cell
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

std::string default_of(const Key& key) {
  if (!key.absent.empty()) return key.absent == "required" ? "**required**" : std::string(key.absent);
  return fmt::format("`{}`", print_value(key, Config{}));
}

std::string constraint_of(const Key& key) {
  std::string text;
  for (const std::string& part : {range_text(key.constraint), key.constraint.note, needs_text(key.constraint)}) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

std::string row(const Key& key) {
  const std::string type = key.constraint.choices.empty() ? type_name(key) : "one of " + type_name(key);
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, in_table(type), default_of(key), key.unit,
                     in_table(constraint_of(key)), in_table(std::string(key.help)));
}

/// Keys that a preset sets in addition to its sizes.
std::string other_keys(const ModelConfig& model) {
  Config preset;
  preset.model = model;
  std::string list;
  for (const Key& key : schema()) {
    const bool size = key.absent == "required" || key.name == "max_position_embeddings";
    const std::string value = print_value(key, preset);
    if (key.table != "model" || size || value == print_value(key, Config{})) continue;
    list += fmt::format("{}`{} = {}`", list.empty() ? "" : ", ", key.name, value);
  }
  return list;
}

}  // namespace

std::string config_reference() {
  std::string text =
      "# Input files\n\n"
      "This page is generated from the schema in `src/config/`; `test_config` compares them.\n\n"
      "An input file is TOML. `megatron_train FILE` reads it, `--print-config` prints every key with its value, "
      "and `--dry-run --ranks N` plans the run without starting anything.\n\n"
      "`--set table.key=value` overrides a key. The value is TOML; anything that is not TOML is a plain string. "
      "A whole number may be written like `3e5`. "
      "Overriding one of `train.steps`, `samples`, `tokens` and `epochs` replaces the others; so do the keys "
      "for warm-up and for decay. `--set model.preset=NAME` replaces the file's sizes but not its vocabulary, "
      "dropout, `init_std`, `head_chunks` and base sizes; other `--set` options override both.\n\n"
      "Unknown keys are errors. In paths `$VAR` and `${VAR}` are replaced by the environment variable, and `~/` at the "
      "beginning by the home directory. Paths are relative to the working directory.\n";
  for (const TableDescription& table : schema_tables()) {
    text += fmt::format(
        "\n## [{}]\n\n{}\n\n| key | type | default | unit | constraint | meaning |\n|---|---|---|---|---|---|\n",
        table.name, table.help);
    for (const Key& key : schema()) {
      if (key.table == table.name) text += row(key);
    }
  }
  text +=
      "\n## Presets\n\n`model.preset` sets these; the vocabulary is that of the data. Other common names work as "
      "well: `gpt2`, `openai-community/gpt2-xl`, `llama-3-8b`, `meta-llama/Llama-2-7b-hf`.\n\n"
      "| preset | layers | hidden_size | attention_heads | sequence_length | and | |\n|---|---|---|---|---|---|---|\n";
  for (const ModelPreset& preset : model_presets()) {
    const ModelConfig& model = preset.model;
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", preset.name, model.layers, model.hidden_size,
                        model.attention_heads, model.sequence_length, other_keys(model), preset.note);
  }
  return text;
}

}  // namespace megatron
