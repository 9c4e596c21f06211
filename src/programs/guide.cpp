#include "programs/guide.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "config/presets.h"
#include "programs/program.h"

namespace megatron {

namespace po = boost::program_options;

namespace {

GuideOption guide_option(const po::option_description& described) {
  GuideOption option;
  option.name = described.long_name();
  option.help = described.description();
  const std::string spelled = described.format_name();  // "-h [ --help ]", "--set"
  if (spelled.starts_with("-") && !spelled.starts_with("--")) option.letter = spelled.substr(1, 1);
  option.value = described.format_parameter();  // "N (=1)"
  if (const auto at = option.value.find(" (="); at != std::string::npos) {
    option.fallback = option.value.substr(at + 3);
    option.fallback.pop_back();
    option.value.resize(at);
  }
  return option;
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string answer(const Guide& guide, const std::string& question, const std::string& what) {
  if (question == "--man") {
    verify(is_one_of(what, {"", "input"}), ErrorKind::configuration,
           "--man={}: --man is the page of this program, --man=input that of input files", what);
    return what == "input" ? input_manual_page() : manual_page(guide);
  }
  verify(is_one_of(what, {"bash", "zsh"}), ErrorKind::configuration, "--completion {}: bash or zsh", what);
  return what == "bash" ? bash_completion(guide) : zsh_completion(guide);
}

}  // namespace

std::vector<GuideOption> guide_options(const po::options_description& options) {
  std::vector<GuideOption> all;
  for (const auto& described : options.options()) all.push_back(guide_option(*described));
  return all;
}

Guide make_guide(const std::string& program, const po::options_description& options,
                 const po::positional_options_description& operands, std::vector<GuideCommand> commands) {
  Guide guide{.program = program, .options = guide_options(options), .operands = {}, .commands = std::move(commands)};
  const unsigned most = std::min(operands.max_total_count(), 8u);
  for (unsigned place = 0; place < most; ++place) {
    const std::string& name = operands.name_for_position(place);
    const auto found = std::find_if(guide.options.begin(), guide.options.end(),
                                    [&](const GuideOption& option) { return option.name == name; });
    if (found == guide.options.end()) continue;
    guide.operands.push_back(*found);
    guide.options.erase(found);
  }
  return guide;
}

std::vector<std::string> choices_in(const std::string& value) {
  std::vector<std::string> choices;
  if (value.find('|') == std::string::npos) return choices;
  std::istringstream words(value);
  for (std::string word; std::getline(words, word, '|');) choices.push_back(word);
  return choices;
}

ValueKind value_kind(const std::string& value) {
  const auto has = [&](const char* part) { return value.find(part) != std::string::npos; };
  if (has("|")) return ValueKind::choice;
  if (has("KEY=VALUE")) return ValueKind::key;
  if (has("INPUT.toml")) return ValueKind::input_file;
  if (has("FOLDER") || has("DIRECTORY") || value == "RUN" || value == "RUN...") return ValueKind::folder;
  return has("FILE") || has("PREFIX") || has("SOURCE") || has("TARGET") ? ValueKind::file : ValueKind::other;
}

std::vector<std::string> words_of(const Key& key) {
  std::vector<std::string> words;
  if (key.full_name() == "model.preset") {
    for (const ModelPreset& preset : model_presets()) words.emplace_back(preset.name);
    return words;
  }
  const std::string type = type_name(key);  // `true or false`, `integer or "epoch"`, `"gpt", "bert"`
  if (type.starts_with("true")) words = {"true", "false"};
  for (std::size_t from = 0; (from = type.find('"', from)) != std::string::npos;) {
    const std::size_t end = type.find('"', from + 1);
    words.push_back(type.substr(from + 1, end - from - 1));
    from = end + 1;
  }
  return words;
}

ValueKind value_kind(const Key& key) {
  if (!words_of(key).empty()) return ValueKind::choice;
  if (!key.constraint.path) return ValueKind::other;
  return key.name == "directory" ? ValueKind::folder : ValueKind::file;
}

void answer_guide(const Guide& guide, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  const std::string question = word.substr(0, word.find('='));
  if (!is_one_of(question, {"--man", "--completion"})) return;
  const bool has_value = question != word;
  const std::string what = has_value                                ? word.substr(question.size() + 1)
                           : question == "--completion" && argc > 2 ? argv[2]
                                                                    : "";
  std::exit(run_alone([&] {
    const std::string text = answer(guide, question, what);
    if (launcher_rank() == 0) std::cout << text;
    return 0;
  }));
}

}  // namespace megatron
