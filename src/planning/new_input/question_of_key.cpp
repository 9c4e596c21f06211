#include "planning/new_input/question_of_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "base/core/error.h"
#include "config/parse/set_value.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"

namespace megatron {

namespace {

/// The first sentence, without its end.
std::string first_sentence(std::string_view help) {
  const std::size_t end = std::min({help.find(". "), help.find("; "), help.size()});
  std::string sentence(help.substr(0, end));
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string without_quotes(const std::string& value) {
  const bool quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

std::string kind_of(const Key& key) {
  const auto& choices = key.constraint.choices;
  std::string kind = choices.empty() ? type_name(key) : fmt::format("{}", fmt::join(choices, ", "));
  if (!key.unit.empty()) kind += fmt::format(", {}{}", key.unit.starts_with("of ") ? "" : "in ", key.unit);
  return kind;
}

/// Description of the key; of keys that say one thing in several ways, that of the first one.
std::string text_of(const Key& key) {
  for (const Key& first : schema()) {
    if (!key.group.empty() && first.group == key.group) return first_sentence(first.help);
  }
  return first_sentence(key.help);
}

/// As a key of type "true or false" takes it.
std::string yes_or_no(const Key& key, const std::string& answer) {
  if (!std::holds_alternative<Access<bool>>(key.access)) return answer;
  return answer == "yes" || answer == "y" ? "true" : answer == "no" || answer == "n" ? "false" : answer;
}

}  // namespace

bool has_own_sizes(const Draft& draft) {
  return draft.config.model.preset.empty();
}

Question about(const std::string& section, const std::string& name) {
  const auto dot = name.find('.');
  const Key* key = find_key(name.substr(0, dot), name.substr(dot + 1));
  internal_check(key != nullptr, "a question names a key of the schema");
  return {.section = section,
          .name = name,
          .key = key,
          .text = text_of(*key),
          .kind = kind_of(*key),
          .help = [key](const Draft&) { return std::string(key->help) + "\n" + facts_of_key(*key); },
          .read = [key](const std::string& answer,
                        Draft& draft) { return set_value(*key, yes_or_no(*key, answer), draft.config); },
          .value =
              [key](const Draft& draft) {
                const std::string value = print_value(*key, draft.config);
                return value.empty() ? std::string(key->absent) : without_quotes(value);
              }};
}

}  // namespace megatron
