// Completion for zsh, by its _arguments: options with the first words of their help, and for --set the schema's keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "programs/guide.h"

namespace megatron {

namespace {

/// Inside single quotes, and with colons and brackets that are none of _arguments'.
std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// The help up to its first pause: a line of a menu.
std::string first_words(const std::string& help) {
  return help.substr(0, std::min({help.find("; "), help.find(": "), help.find(". "), help.size()}));
}

/// The action that completes a value: ":FILE:_files".
std::string action(const std::string& value, const std::string& program) {
  const std::string name = quoted(value.substr(0, value.find('|') == std::string::npos ? value.size() : 0));
  switch (value_kind(value)) {
    case ValueKind::choice: return fmt::format(":value:({})", fmt::join(choices_in(value), " "));
    case ValueKind::key: return fmt::format(":{}:_{}_keys", name, program);
    case ValueKind::input_file: return fmt::format(":{}:_files -g \"*.toml(-.)\"", name);
    case ValueKind::file: return fmt::format(":{}:_files", name);
    case ValueKind::folder: return fmt::format(":{}:_files -/", name);
    case ValueKind::other: break;
  }
  return fmt::format(":{}: ", name);
}

std::string option_specs(const std::vector<GuideOption>& options, const std::string& program) {
  std::string text;
  for (const GuideOption& option : options) {
    const std::string help = quoted(first_words(option.help));
    if (!option.letter.empty()) text += fmt::format("    '-{}[{}]' \\\n", option.letter, help);
    if (option.value.empty()) {
      text += fmt::format("    '--{}[{}]' \\\n", option.name, help);
    } else {
      const bool several = value_kind(option.value) == ValueKind::key || option.value.ends_with("...");
      text +=
          fmt::format("    '{}--{}=[{}]{}' \\\n", several ? "*" : "", option.name, help, action(option.value, program));
    }
  }
  return text;
}

std::string operand_specs(const Guide& guide) {
  std::string text;
  for (const GuideOption& operand : guide.operands)
    text += fmt::format("    '{}' \\\n", action(operand.value, guide.program));
  return text;
}

std::string commands_body(const Guide& guide) {
  std::string text = "  local context state state_descr line curcontext=$curcontext\n  typeset -A opt_args\n";
  text += "  _arguments -C \\\n" + option_specs(guide.options, guide.program);
  text += "    '1: :->command' \\\n    '*:: :->argument'\n  case $state in\n  command)\n    local -a commands=(\n";
  for (const GuideCommand& command : guide.commands) {
    text += fmt::format("      '{}:{}'\n", command.name, quoted(first_words(command.about)));
  }
  text += "    )\n    _describe command commands\n    ;;\n  argument)\n    case $words[1] in\n";
  for (const GuideCommand& command : guide.commands) {
    text += fmt::format("    {})\n    _arguments \\\n{}    '*:name:_files'\n    ;;\n", command.name,
                        option_specs(command.options, guide.program));
  }
  return text + "    *) _files ;;\n    esac\n    ;;\n  esac\n";
}

/// "--set=train.steps=3" and "--set train.steps=3": tables, then keys, then values.
std::string key_function(const std::string& program) {
  std::string text =
      fmt::format("_{}_keys() {{\n  if compset -P '*='; then\n    case ${{${{IPREFIX%=}}##*=}} in\n", program);
  for (const Key& key : schema()) {
    const ValueKind kind = value_kind(key);
    if (kind == ValueKind::choice) {
      text += fmt::format("    {}) compadd -- {} ;;\n", key.full_name(), fmt::join(words_of(key), " "));
    } else if (kind != ValueKind::other) {
      text += fmt::format("    {}) _files{} ;;\n", key.full_name(), kind == ValueKind::folder ? " -/" : "");
    }
  }
  text += "    esac\n    return\n  fi\n  local -a keys\n  case $PREFIX in\n";
  std::string tables;
  for (const TableDescription& table : schema_tables()) {
    text += fmt::format("  {}.*) keys=(\n", table.name);
    for (const Key& key : schema()) {
      if (key.table != table.name) continue;
      text += fmt::format("    '{}:{}'\n", key.full_name(), quoted(first_words(std::string(key.help))));
    }
    text += "    ) ;;\n";
    tables += fmt::format("    '{}.:{}'\n", table.name, quoted(first_words(std::string(table.help))));
  }
  return text + "  *) keys=(\n" + tables +
         "    )\n    _describe -t tables table keys -S ''\n    return ;;\n  esac\n"
         "  _describe -t keys key keys -S '='\n}\n";
}

}  // namespace

std::string zsh_completion(const Guide& guide) {
  const std::string& name = guide.program;
  std::string text = fmt::format("#compdef {0}\n# Completion of {0} for zsh, printed by: {0} --completion zsh\n", name);
  const auto is_key = [](const GuideOption& option) { return value_kind(option.value) == ValueKind::key; };
  if (std::any_of(guide.options.begin(), guide.options.end(), is_key)) text += key_function(name);
  text += fmt::format("_{}() {{\n", name);
  if (guide.commands.empty()) {
    text += "  _arguments \\\n" + option_specs(guide.options, name) + operand_specs(guide);
    text += guide.operands.empty() ? "    '*:file:_files'\n" : "    && return 0\n";
  } else {
    text += commands_body(guide);
  }
  // As a file of $fpath, or read by `source <(PROGRAM --completion zsh)`.
  return text + fmt::format("}}\nif [[ $funcstack[1] == _{0} ]]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n", name);
}

}  // namespace megatron
