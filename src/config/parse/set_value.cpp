#include "config/parse/set_value.h"

#include <fmt/format.h>

#include <string_view>

#include "config/parse/read_value.h"
#include "config/parse/text_checks.h"

namespace megatron {

TextValue read_text(const std::string& text, const Key& key) {
  if (const auto problem = check_text(text)) return {.document = {}, .problem = problem->message};
  const bool wants_text =
      std::holds_alternative<Access<std::string>>(key.access) || std::holds_alternative<Access<Blend>>(key.access);
  const TextValue plain{.document = toml::table{{"value", text}}, .problem = ""};
  if (find_stray_character(text)) return plain;
  try {
    toml::table parsed = toml::parse("value = " + text);
    const toml::node* value = parsed.get("value");
    const bool is_text = value->is_string() || value->is_array() || value->is_table();
    if (parsed.size() == 1 && (is_text || !wants_text)) return {.document = std::move(parsed), .problem = ""};
  } catch (const toml::parse_error&) {
    const bool digits = text.find_first_of("0123456789") != std::string::npos &&
                        text.find_first_not_of("+-_0123456789") == std::string::npos;
    if (digits && !wants_text) {
      return {.document = {},
              .problem = fmt::format("{} = {} is out of range: not a 64-bit integer", key.full_name(), text)};
    }
  }
  return plain;
}

std::string set_value(const Key& key, const std::string& text, Config& config) {
  const TextValue value = read_text(text, key);
  return value.problem.empty() ? read_value(*value.document.get("value"), key, config) : value.problem;
}

}  // namespace megatron
