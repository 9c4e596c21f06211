#include "data/evaluation_tasks/example_text.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/text/foreign_text.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

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
  const std::string advice = encoding_advice(input.text.substr(0, 4));
  verify(advice.empty(), ErrorKind::data, "{}: {}", input.path, advice);
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

std::vector<ScoredSequence> text_windows(const TaskInput& input, std::span<const std::int32_t> tokens,
                                         std::int64_t usual_stride) {
  verify(tokens.size() >= 2, ErrorKind::data, "{} has {} tokens; the loss of a text needs two", input.path,
         tokens.size());
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t stride = input.stride.value_or(usual_stride);
  verify(stride >= 1 && stride <= input.context, ErrorKind::configuration,
         "a stride of {}: between 1 and the model's context, {}", stride, input.context);
  std::vector<ScoredSequence> windows;
  for (std::int64_t first = 0, scored = 1; scored < count; first += stride) {
    const std::int64_t end = std::min(first + input.context + 1, count);
    windows.push_back(
        {tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)), scored - first});
    scored = end;
  }
  return windows;
}

void ExampleLine::refuse(std::string_view message) const {
  fail(ErrorKind::data, "{}:{}: {}", input.path, number, message);
}

void ExampleLine::visit_members(const std::function<void(std::string_view key, JsonReader& json)>& visit) const {
  try {
    JsonReader json(text, JsonDialect::python);
    visit_object(json, "a JSON object", [&](std::string_view key) { visit(key, json); });
    json.expect_end();
  } catch (const JsonError& error) {
    const std::string advice = json_line_advice(text);
    const std::string key = error.key.empty() ? "" : fmt::format(", in the value of \"{}\"", printable(error.key));
    refuse(fmt::format("byte {} of the line{}: {}{}{}", error.at + 1, key, error.reason, advice.empty() ? "" : "; ",
                       advice));
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

bool FittedSequences::add(const ExampleLine& line, TaskInput::Pair pair) {
  auto& [tokens, context] = pair;
  const auto most = static_cast<std::size_t>(line.input.context);
  const std::size_t targets = tokens.size() - context;
  if (targets == 0) line.refuse("no token is to be predicted: the vocabulary has none for this text");
  if (targets > most) {
    line.refuse(fmt::format("{} tokens are to be predicted, and the model's context has {}", targets, most));
  }
  const std::optional<std::int32_t> begin = line.input.begin;
  if (begin || context == 0) {
    tokens.insert(tokens.begin(), begin.value_or(line.input.before));
    ++context;
  }
  // The last target is not an input.
  const std::size_t room = most + 1 - targets;
  const bool too_long = context > room;
  if (too_long) {
    const auto left = tokens.begin() + (begin ? 1 : 0);
    tokens.erase(left, left + static_cast<std::ptrdiff_t>(context - room));
    context = room;
  }
  tokens_.push_back(std::move(tokens));
  sequences_.push_back({tokens_.back(), static_cast<std::int64_t>(context)});
  return too_long;
}

}  // namespace megatron
