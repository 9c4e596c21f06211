#include "planning/new_input/input_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/text/shell_word.h"
#include "config/schema/schema.h"

namespace megatron {

namespace {

constexpr std::size_t kColumns = 110;

std::string comment(std::string text) {
  std::string lines;
  while (text.size() > kColumns && text.rfind(' ', kColumns) != std::string::npos) {
    const std::size_t space = text.rfind(' ', kColumns);
    lines += "# " + text.substr(0, space) + "\n";
    text.erase(0, space + 1);
  }
  return lines + "# " + text + "\n";
}

// Else the programs are those that are installed.
bool in_sources() {
  std::error_code unknown;
  return std::filesystem::exists("scripts/launch.sh", unknown);
}

const char* program() {
  return in_sources() ? "./megatron_train" : "megatron_train";
}

std::string first_lines(const Draft& draft, const std::string& path) {
  const ModelConfig& model = draft.config.model;
  const std::string sizes = model.preset.empty()
                                ? fmt::format("{} layers of width {}", model.all_layers(), model.hidden_size)
                                : "preset " + model.preset;
  return fmt::format(
      "# {}, {}, on {} rank{}. Keys that are not here have their defaults: inputs/README.md.\n"
      "#\n# Plan:   {} {} --dry-run --ranks {}\n# Train:  {}\n",
      model.family, sizes, draft.ranks, draft.ranks == 1 ? "" : "s", program(), shell_word(path), draft.ranks,
      training_command(draft, path));
}

}  // namespace

std::string training_command(const Draft& draft, const std::string& path) {
  const std::string launcher = draft.ranks == 1 ? ""
                               : in_sources()   ? fmt::format("scripts/launch.sh {} ", draft.ranks)
                                                : fmt::format("megatron_launch {} ", draft.ranks);
  return fmt::format("{}{} {}", launcher, program(), shell_word(path));
}

std::string input_text(const Draft& draft, std::span<const Question> questions, const std::string& path) {
  std::string text = first_lines(draft, path);
  for (const TableDescription& table : schema_tables()) {
    bool begun = false;
    for (const Key& key : schema()) {
      const auto value = draft.in_file.find(key.full_name());
      if (key.table != table.name || value == draft.in_file.end()) continue;
      const auto question =
          std::find_if(questions.begin(), questions.end(), [&](const Question& each) { return each.key == &key; });
      if (!begun) text += fmt::format("\n[{}]\n", table.name);
      begun = true;
      text += comment(fmt::format("{} ({})", question->text, question->kind));
      text += fmt::format("{} = {}\n", key.name, value->second);
    }
  }
  return text;
}

}  // namespace megatron
