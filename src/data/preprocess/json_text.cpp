#include "data/preprocess/json_text.h"

#include <fmt/format.h>

#include "base/text/foreign_text.h"
#include "base/text/json_reader.h"

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

std::string keys_of(std::string_view line) {
  std::string keys;
  JsonReader json(line, JsonDialect::python);
  visit_object(json, "an object", [&](std::string_view key) {
    keys.append(keys.empty() ? "" : ", ").append(key);
    json.skip_value();
  });
  return keys.empty() ? "none" : keys;
}

/// The probable fault of a line, after a semicolon; empty if nothing is known.
std::string with_semicolon(std::string_view line) {
  const std::string advice = json_line_advice(line);
  return advice.empty() ? "" : "; " + advice;
}

/// Calls take(json) at the value of `key` in the object that `line` is, at the last one if it is there several times;
/// it must take the value, and return whether that is of the right kind.
template <class Take>
void find_value(std::string_view line, std::string_view key, const char* wanted, const Take& take) {
  JsonReader json(line, JsonDialect::python);
  const char kind = json.peek();
  bool found = false;
  char value = '\0';  // first character of the last value of this key
  if (kind != '{') {
    json.skip_value();
    json.expect_end();
    throw BadDocument{fmt::format("a JSON {} instead of an object", kind_of(kind)) + with_semicolon(line)};
  }
  visit_object(json, "an object", [&](std::string_view name) {
    if (name != key) return json.skip_value();
    value = json.peek();
    found = take(json, value);
  });
  json.expect_end();
  if (found) return;
  if (value != '\0') throw BadDocument{fmt::format("\"{}\" is a JSON {} instead of {}", key, kind_of(value), wanted)};
  throw BadDocument{
      fmt::format("no key \"{}\" (there are: {}); name the text's key with --json-key", key, printable(keys_of(line)))};
}

/// Calls find(), whose syntax errors are bad documents.
template <class Find>
void with_bad_syntax(std::string_view line, const Find& find) {
  try {
    find();
  } catch (const JsonError& error) {
    throw BadDocument{
        fmt::format("not valid JSON (byte {} of the line): {}", error.at + 1, error.reason) + with_semicolon(line),
        error.at};
  }
}

}  // namespace

std::string_view text_of_json(std::string_view line, std::string_view key, std::string& buffer) {
  std::string_view text;
  with_bad_syntax(line, [&] {
    find_value(line, key, "a string", [&](JsonReader& json, char kind) {
      if (kind == '"') {
        text = json.string(buffer);
      } else {
        json.skip_value();
      }
      return kind == '"';
    });
  });
  return text;
}

std::string_view texts_of_json(std::string_view line, std::string_view key, std::string& buffer,
                               std::vector<std::size_t>& ends) {
  with_bad_syntax(line, [&] {
    find_value(line, key, "an array of strings", [&](JsonReader& json, char kind) {
      buffer.clear();
      ends.clear();
      if (kind != '[') return json.skip_value(), false;
      bool strings = true;
      std::string unescaped;
      json.expect('[', "an array");
      if (json.take(']')) return true;
      do {
        if (json.peek() != '"') {
          strings = false;
          json.skip_value();
          continue;
        }
        buffer += json.string(unescaped);
        ends.push_back(buffer.size());
      } while (json.take(','));
      json.expect(']', "',' or ']'");
      return strings;
    });
  });
  return buffer;
}

}  // namespace megatron
