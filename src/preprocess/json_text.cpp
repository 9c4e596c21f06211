#include "preprocess/json_text.h"

#include <fmt/format.h>

#include <optional>

#include "text/json_reader.h"

namespace megatron {

namespace {

/// Text from an input file: control characters and whatever is not ASCII become '?'.
std::string printable(std::string_view text) {
  std::string result(text.substr(0, 200));
  for (char& c : result) c = c >= ' ' && c <= '~' ? c : '?';
  return result;
}

const char* kind_of(char first) {
  switch (first) {
    case '{': return "object";
    case '[': return "array";
    case '"': return "string";
    case 't':
    case 'f': return "boolean";
    case 'n': return "null";
    default: return "number";
  }
}

/// Calls visit(key) at each value of the object that comes next; it must take the value.
template <class Visit>
void visit_members(JsonReader& json, Visit&& visit) {
  std::string buffer;
  json.expect('{', "an object");
  if (json.take('}')) return;
  do {
    const std::string_view key = json.string(buffer);
    json.expect(':', "':' after a key");
    visit(key);
  } while (json.take(','));
  json.expect('}', "',' or '}'");
}

std::string keys_of(std::string_view line) {
  std::string keys;
  JsonReader json(line);
  visit_members(json, [&](std::string_view key) {
    keys.append(keys.empty() ? "" : ", ").append(key);
    json.skip_value();
  });
  return keys.empty() ? "none" : keys;
}

/// The same as text_of_json, but for syntax errors.
std::string_view find_text(std::string_view line, std::string_view key, std::string& buffer) {
  JsonReader json(line);
  const char kind = json.peek();
  std::optional<std::string_view> text;
  char value = '\0';  // what the last value of this key begins with
  if (kind != '{') {
    json.skip_value();
    json.expect_end();
    throw BadDocument{fmt::format("a JSON {} instead of an object", kind_of(kind))};
  }
  visit_members(json, [&](std::string_view found) {
    if (found != key) return json.skip_value();
    value = json.peek();
    text.reset();
    if (value == '"') {
      text = json.string(buffer);
    } else {
      json.skip_value();
    }
  });
  json.expect_end();
  if (text) return *text;
  if (value != '\0') throw BadDocument{fmt::format("\"{}\" is a JSON {} instead of a string", key, kind_of(value))};
  throw BadDocument{
      fmt::format("no key \"{}\" (there are: {}); name the text's key with --json-key", key, printable(keys_of(line)))};
}

}  // namespace

std::string_view text_of_json(std::string_view line, std::string_view key, std::string& buffer) {
  try {
    return find_text(line, key, buffer);
  } catch (const JsonError& error) {
    throw BadDocument{fmt::format("not valid JSON (byte {} of the line): {}", error.at + 1, error.reason), error.at};
  }
}

}  // namespace megatron
