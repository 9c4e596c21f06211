#include "data/cleaning_steps/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/foreign_text.h"
#include "base/text/json_reader.h"
#include "data/preprocess/json_text.h"

namespace megatron {

namespace {

[[noreturn]] void reject(std::string_view line, const JsonError& error) {
  const std::string advice = json_line_advice(line);
  throw BadDocument{fmt::format("not valid JSON (byte {} of the line): {}{}{}", error.at + 1, error.reason,
                                advice.empty() ? "" : "; ", advice),
                    error.at};
}

}  // namespace

void Document::read_json(std::string_view line) {
  line_ = line;
  plain_ = false;
  for (Value& value : values_) value.found = value.replaced = false;
  try {
    JsonReader json(line, JsonDialect::python);
    visit_object(json, "an object", [&](std::string_view name) {
      const auto member =
          std::find_if(members_.begin(), members_.end(), [&](const MemberName& wanted) { return wanted.name == name; });
      if (member == members_.end()) return json.skip_value(kDeepestJson);
      Value& value = values_[static_cast<std::size_t>(member - members_.begin())];
      const std::size_t begin = json.position();
      if (value.found) throw BadDocument{fmt::format("the key \"{}\" is there twice", member->name), begin};
      if (json.peek() != '"') {
        if (member->required) throw BadDocument{fmt::format("\"{}\" is not a string", member->name), begin};
        return json.skip_value(kDeepestJson);
      }
      value.found = true;
      value.begin = begin;
      value.text = json.string(value.buffer);
      value.end = json.position();
    });
    json.expect_end();
  } catch (const JsonError& error) {
    reject(line, error);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].required && !values_[i].found) {
      throw BadDocument{fmt::format("no key \"{}\"", members_[i].name)};
    }
  }
}

void Document::read_plain(std::string_view line) {
  line_ = line;
  plain_ = true;
  for (Value& value : values_) value.found = value.replaced = false;
  if (values_.empty()) return;
  values_.front().found = true;
  values_.front().text = line;
}

std::string_view Document::value(std::size_t member) const {
  const Value& value = values_[member];
  if (!value.found) return {};
  return value.replaced ? std::string_view(value.replacement) : value.text;
}

void Document::replace(std::size_t member, std::string text) {
  values_[member].replacement = std::move(text);
  values_[member].replaced = true;
}

void Document::append_to(std::string& lines) const {
  if (plain_) {
    lines += values_.empty() ? line_ : value(0);
  } else {
    // Members that were replaced, in the order of the line; there are few.
    std::size_t at = 0;
    while (true) {
      const Value* next = nullptr;
      for (const Value& value : values_) {
        if (value.replaced && value.begin >= at && (next == nullptr || value.begin < next->begin)) next = &value;
      }
      if (next == nullptr) break;
      lines.append(line_, at, next->begin - at);
      append_json_string(lines, next->replacement);
      at = next->end;
    }
    lines.append(line_, at);
  }
  lines.push_back('\n');
}

void append_json_string(std::string& json, std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  json.push_back('"');
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json.append(text, plain, i - plain);
    plain = i + 1;
    json.push_back('\\');
    switch (c) {
      case '"':
      case '\\': json.push_back(text[i]); break;
      case '\n': json.push_back('n'); break;
      case '\r': json.push_back('r'); break;
      case '\t': json.push_back('t'); break;
      default: json.append("u00").append({kDigits[c >> 4], kDigits[c & 15]});
    }
  }
  json.append(text, plain);
  json.push_back('"');
}

}  // namespace megatron
