// Completion for bash: words of a program's options, and for --set of the schema's keys and values. Works with and
// without the package bash-completion.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "programs/guide.h"

namespace megatron {

namespace {

/// The part that all programs' functions share: PROGRAM is replaced by the name. COMP_WORDS has "--set a=b" in pieces
/// wherever COMP_WORDBREAKS has "=": they are joined first, and the answer is the piece alone.
constexpr const char* kBegin = R"BASH(# Completion of PROGRAM for bash, printed by: PROGRAM --completion bash
_PROGRAM() {
  local -a words=()
  local i word option='' value current previous command='' list='' kind='' head
  COMPREPLY=()
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((i == COMP_CWORD)) && [[ -z $word && ${COMP_LINE:COMP_POINT-1:1} == [[:space:]] ]]; then
      words+=('')
    elif ((i > 1)) && [[ $word == =* || ${COMP_WORDS[i-1]} == *= ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  current=${words[-1]}
  previous=
  ((${#words[@]} < 2)) || previous=${words[-2]}
  value=$current
  if [[ $current == --*=* ]]; then
    option=${current%%=*} value=${current#*=}
  elif [[ $previous == --* && $previous != *=* ]]; then
    option=$previous
  fi
)BASH";

constexpr const char* kEnd = R"BASH(
  if [[ $kind == key ]]; then
    kind=
    if [[ $value == *=* ]]; then
      _PROGRAM_values "${value%%=*}"
      value=${value#*=}
    else
      _PROGRAM_keys "$value"
      compopt -o nospace 2> /dev/null
    fi
  fi
  head=
  [[ $COMP_WORDBREAKS == *=* ]] || head=${current%"$value"}
  case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
    input_file) mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$value"; compgen -d -- "$value") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$list" -- "$value") ;;
  esac
  case $kind in
    file | input_file | folder) compopt -o filenames 2> /dev/null ;;
  esac
  COMPREPLY=("${COMPREPLY[@]/#/$head}")
  [[ -n ${COMPREPLY[0]-} ]] || COMPREPLY=()
}
complete -F _PROGRAM PROGRAM
)BASH";

std::string replaced(std::string text, const std::string& program) {
  for (std::size_t at = 0; (at = text.find("PROGRAM", at)) != std::string::npos; at += program.size()) {
    text.replace(at, 7, program);
  }
  return text;
}

const char* name_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::key: return "key";
    case ValueKind::input_file: return "input_file";
    case ValueKind::file: return "file";
    case ValueKind::folder: return "folder";
    case ValueKind::choice:
    case ValueKind::other: break;
  }
  return "none";
}

/// "    --tensor) kind=none ;;"
std::string value_case(const GuideOption& option) {
  const ValueKind kind = value_kind(option.value);
  if (kind != ValueKind::choice) return fmt::format("    --{}) kind={} ;;\n", option.name, name_of(kind));
  return fmt::format("    --{}) kind=words list='{}' ;;\n", option.name, fmt::join(choices_in(option.value), " "));
}

std::string names_of(const std::vector<GuideOption>& options) {
  std::string names;
  for (const GuideOption& option : options) names += fmt::format("{}--{}", names.empty() ? "" : " ", option.name);
  return names;
}

std::string option_cases(const std::vector<GuideOption>& options) {
  std::string text = "  case $option in\n";
  for (const GuideOption& option : options) {
    if (!option.value.empty()) text += value_case(option);
  }
  return text + "  esac\n";
}

/// The words of one command line, or of one sub-command's.
std::string line_words(const std::vector<GuideOption>& options, const std::vector<GuideOption>& operands) {
  std::string text = option_cases(options);
  text += "  if [[ -z $kind && $current == -* ]]; then\n    kind=words list='" + names_of(options) + "'\n";
  if (operands.empty()) return text + "  fi\n  [[ -n $kind ]] || kind=file\n";
  return text + fmt::format("  fi\n  [[ -n $kind ]] || kind={}\n", name_of(value_kind(operands.front().value)));
}

std::string command_words(const Guide& guide) {
  std::string names, text;
  for (const GuideCommand& command : guide.commands) names += (names.empty() ? "" : " ") + command.name;
  text += "  ((${#words[@]} < 2)) || command=${words[0]}\n  case $command in\n";
  for (const GuideCommand& command : guide.commands) {
    text += fmt::format("  {})\n{}  ;;\n", command.name, line_words(command.options, {}));
  }
  text += "  *)\n" + line_words(guide.options, {});
  text += fmt::format("  if ((${{#words[@]}} == 1)) && [[ $current != -* ]]; then kind=words list='{}'; fi\n", names);
  return text + "  ;;\n  esac\n";
}

/// Tables first, then the keys of one.
std::string key_functions() {
  std::string text = "_PROGRAM_keys() {\n  case $1 in\n", tables;
  for (const TableDescription& table : schema_tables()) {
    std::string keys;
    for (const Key& key : schema()) {
      if (key.table == table.name) keys += fmt::format("{}{}=", keys.empty() ? "" : " ", key.full_name());
    }
    text += fmt::format("    {}.*) list='{}' ;;\n", table.name, keys);
    tables += fmt::format("{}{}.", tables.empty() ? "" : " ", table.name);
  }
  text += fmt::format("    *) list='{}' ;;\n  esac\n}}\n_PROGRAM_values() {{\n  kind=none\n  case $1 in\n", tables);
  for (const Key& key : schema()) {
    const ValueKind kind = value_kind(key);
    if (kind == ValueKind::choice) {
      text += fmt::format("    {}) kind=words list='{}' ;;\n", key.full_name(), fmt::join(words_of(key), " "));
    } else if (kind != ValueKind::other) {
      text += fmt::format("    {}) kind={} ;;\n", key.full_name(), name_of(kind));
    }
  }
  return text + "  esac\n}\n";
}

}  // namespace

std::string bash_completion(const Guide& guide) {
  bool keys = false;
  for (const GuideOption& option : guide.options) keys = keys || value_kind(option.value) == ValueKind::key;
  std::string text = kBegin;
  text += guide.commands.empty() ? line_words(guide.options, guide.operands) : command_words(guide);
  text += kEnd;
  // Without --set there is no kind "key".
  text += keys ? key_functions() : "";
  return replaced(text, guide.program);
}

}  // namespace megatron
