#include "base/text/foreign_json.h"

#include <cmath>

#include "base/core/error.h"
#include "base/text/strict_json.h"

namespace megatron {

using nlohmann::json;

const json& member_at(const json& object, const char* key) {
  verify(object.is_object() && object.contains(key), ErrorKind::checkpoint, "\"{}\" is missing", key);
  return object.at(key);
}

std::int64_t integer_in(const json& value, const char* key, std::int64_t lowest, std::int64_t highest) {
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                                               : value.is_number_integer();
  verify(fits, ErrorKind::checkpoint, "\"{}\" is not an integer", key);
  const auto number = value.get<std::int64_t>();
  verify(number >= lowest && number <= highest, ErrorKind::checkpoint, "\"{}\" is {}, outside of {} ... {}", key,
         number, lowest, highest);
  return number;
}

json parse_json(const std::string& text, const std::string& what) {
  try {
    return parse_strict_json(text, std::size_t{kJsonDepthLimit});
  } catch (const Error& error) {
    fail(ErrorKind::checkpoint, "{}: {}", what, error.what());
  }
}

std::int64_t integer_at(const json& object, const char* key, std::int64_t lowest, std::int64_t highest) {
  return integer_in(member_at(object, key), key, lowest, highest);
}

double number_at(const json& object, const char* key) {
  const json& value = member_at(object, key);
  verify(value.is_number() && std::isfinite(value.get<double>()), ErrorKind::checkpoint, "\"{}\" is not a number", key);
  return value.get<double>();
}

json object_at(const json& content, const char* key) {
  const json& object = member_at(content, key);
  verify(object.is_object(), ErrorKind::checkpoint, "\"{}\" is not an object", key);
  return object;
}

std::string text_at(const json& object, const char* key, std::size_t longest) {
  const json& value = member_at(object, key);
  verify(value.is_string(), ErrorKind::checkpoint, "\"{}\" is not a text", key);
  auto text = value.get<std::string>();
  verify(!text.empty() && text.size() <= longest, ErrorKind::checkpoint, "\"{}\" has {} characters, not 1 to {}", key,
         text.size(), longest);
  for (const char c : text) {
    verify(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, ErrorKind::checkpoint,
           "\"{}\" contains control characters", key);
  }
  return text;
}

}  // namespace megatron
