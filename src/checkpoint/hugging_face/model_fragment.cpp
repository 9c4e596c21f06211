#include "checkpoint/hugging_face/model_fragment.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "config/parse/presets.h"
#include "config/schema/print.h"

namespace megatron {

namespace {

/// A path as TOML reads it, on one line.
std::string quoted(const std::string& path) {
  return nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A path as the shell reads it: those of users have spaces and signs.
std::string as_word(const std::string& path) {
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace

std::string model_fragment(const Config& config, const std::string& target, const std::string& tokenizer,
                           const std::string& vocab_file) {
  static constexpr std::array<std::string_view, 2> kTables = {"model", "moe"};
  std::string text = "# The imported model, for an input file that trains it; these lines go with it:\n";
  text += fmt::format("#   [checkpoint]\n#   initialize_from = {}\n", quoted(target));
  if (!tokenizer.empty()) {
    text += fmt::format(
        "# Data of its vocabulary:\n#   megatron_preprocess --input TEXT --output data/mine --tokenizer {}{}\n",
        tokenizer, vocab_file.empty() ? "" : " --vocab-file " + as_word(target + "/" + vocab_file));
    text += "#   [data]\n#   train = \"data/mine\"\n";
  }
  return text + "\n" + print_given(config, with_preset_alone(config), kTables);
}

}  // namespace megatron
