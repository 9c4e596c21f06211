#include "evaluation/example_text.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace megatron {

namespace {

std::int64_t lines_in(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

// The code point that ends at `end`.
CodePoint last_code_point(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

}  // namespace

std::string_view checked_utf8(const TaskInput& input) {
  const std::size_t bad = first_invalid_utf8(input.text);
  verify(bad == input.text.size(), ErrorKind::data, "{}:{}: not valid UTF-8 (byte {} of the file)", input.path,
         lines_in(input.text.substr(0, bad)) + 1, bad + 1);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  return input.text.starts_with(kByteOrderMark) ? input.text.substr(kByteOrderMark.size()) : input.text;
}

bool is_white_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view without_leading_space(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = first_code_point(text);
    if (!is_white_space(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  return text;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const CodePoint last = last_code_point(text);
    if (!is_white_space(last.value)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

std::string_view last_word(std::string_view text) {
  text = without_trailing_space(text);
  std::size_t begin = text.size();
  while (begin > 0) {
    const CodePoint last = last_code_point(text.substr(0, begin));
    if (is_white_space(last.value)) break;
    begin -= last.bytes;
  }
  return text.substr(begin);
}

void ExampleLine::refuse(std::string_view message) const {
  fail(ErrorKind::data, "{}:{}: {}", input.path, number, message);
}

void ExampleLine::visit_members(const std::function<void(std::string_view key, JsonReader& json)>& visit) const {
  try {
    JsonReader json(text);
    visit_object(json, "a JSON object", [&](std::string_view key) { visit(key, json); });
    json.expect_end();
  } catch (const JsonError& error) {
    refuse(fmt::format("byte {} of the line: {}", error.at + 1, error.reason));
  }
}

void visit_lines(const TaskInput& input, const std::function<void(const ExampleLine& line)>& visit) {
  std::string_view rest = checked_utf8(input);
  bool any = false;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (without_leading_space(line).empty()) continue;
    any = true;
    visit({input, line, number});
  }
  verify(any, ErrorKind::data, "{} has no examples: it is empty", input.path);
}

bool FittedSequences::add(const ExampleLine& line, std::vector<std::int32_t> context,
                          std::span<const std::int32_t> targets) {
  const auto most = static_cast<std::size_t>(line.input.context);
  if (targets.size() > most) {
    line.refuse(fmt::format("{} tokens are to be predicted, and the model's context has {}", targets.size(), most));
  }
  if (context.empty()) context.push_back(line.input.before);
  // The last target is not an input.
  const std::size_t room = most + 1 - targets.size();
  const bool too_long = context.size() > room;
  if (too_long) context.erase(context.begin(), context.end() - static_cast<std::ptrdiff_t>(room));
  const auto first = static_cast<std::int64_t>(context.size());
  context.insert(context.end(), targets.begin(), targets.end());
  tokens_.push_back(std::move(context));
  sequences_.push_back({tokens_.back(), first});
  return too_long;
}

}  // namespace megatron
