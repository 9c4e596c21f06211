#include "inference/generation/prompts.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/core/error.h"
#include "base/text/foreign_text.h"
#include "base/text/json_reader.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

namespace megatron {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Builds nothing of the other members, however many and deep they are.
std::string prompt_of_json(std::string_view line, const std::string& where) {
  constexpr std::array<std::string_view, 2> kKeys = {"prompt", "text"};
  std::array<std::optional<std::string>, kKeys.size()> values;
  JsonReader reader(line, JsonDialect::python);
  try {
    std::string buffer;
    visit_object(reader, "an object", [&](std::string_view key) {
      const auto known = static_cast<std::size_t>(std::find(kKeys.begin(), kKeys.end(), key) - kKeys.begin());
      if (known == kKeys.size()) return reader.skip_value();
      const char next = reader.peek();  // 0: the line ends here, which string() says
      verify(next == '"' || next == 0, ErrorKind::data, "{}: \"{}\" is no string", where, kKeys[known]);
      verify(!values[known], ErrorKind::data, "{}: \"{}\" is there twice", where, kKeys[known]);
      values[known] = reader.string(buffer);
    });
    reader.expect_end();
  } catch (const JsonError& error) {
    fail(ErrorKind::data,
         "{}: damaged JSON (byte {}: {}); a line that begins with {{ is a JSON object with \"prompt\" or \"text\"{}",
         where, error.at + 1, error.reason, line.ends_with('}') ? "" : "; " + json_line_advice(line));
  }
  for (std::optional<std::string>& value : values) {
    if (value) return std::move(*value);
  }
  fail(ErrorKind::data, "{}: the object has neither \"prompt\" nor \"text\"", where);
}

/// A file of JSON in the place of JSON lines; any other text is prompts.
bool is_array_of_objects(std::string_view contents) {
  const std::size_t first = contents.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || contents[first] != '[') return false;
  const std::size_t second = contents.find_first_not_of(" \t\r\n", first + 1);
  return second != std::string_view::npos && contents[second] == '{' && nlohmann::json::accept(contents);
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view contents, const std::string& name) {
  if (contents.starts_with(kByteOrderMark)) contents.remove_prefix(kByteOrderMark.size());
  const std::string advice = encoding_advice(contents.substr(0, 4));
  verify(advice.empty(), ErrorKind::data, "{}: {}", name, advice);
  verify(!is_array_of_objects(contents), ErrorKind::data, "{}: {}", name, json_line_advice("["));
  std::vector<std::string> prompts;
  while (!contents.empty()) {
    const std::size_t end = contents.find('\n');
    std::string_view line = contents.substr(0, end);
    contents.remove_prefix(end == std::string_view::npos ? contents.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string where = fmt::format("{}:{}", name, prompts.size() + 1);
    const std::size_t bad = first_invalid_utf8(line);
    verify(bad == line.size(), ErrorKind::data, "{}: not valid UTF-8 (byte {} of the line)", where, bad + 1);
    prompts.push_back(line.starts_with('{') ? prompt_of_json(line, where) : std::string(line));
  }
  verify(!prompts.empty(), ErrorKind::data, "{} is empty: it needs one prompt per line", name);
  return prompts;
}

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const PromptRules& rules)
    : begin_(rules.begin.value_or(tokenizer.eod_id())),
      rules_(rules),
      encoder_(tokenizer.make_encoder(rules.special)) {}

std::vector<std::int32_t> PromptEncoder::tokens_of(const std::string& text, const std::string& name) {
  const std::size_t bad = first_invalid_utf8(text);
  verify(bad == text.size(), ErrorKind::data, "{}: not valid UTF-8 (byte {})", name, bad + 1);
  std::vector<std::int32_t> tokens;
  if (rules_.begin_token && !rules_.for_encoder) tokens.push_back(begin_);
  if (rules_.encoder_begin) tokens.push_back(*rules_.encoder_begin);
  encoder_->encode(text, tokens);
  if (rules_.encoder_end) tokens.push_back(*rules_.encoder_end);
  verify(!tokens.empty(), ErrorKind::data, "{}: {}", name,
         rules_.for_encoder ? "empty, and the model's encoder needs a token to read"
                            : "empty, and --no-begin-token leaves no token to start with");
  return tokens;
}

Prompt PromptEncoder::encode(const std::string& text, std::int64_t longest, bool truncate, const std::string& name) {
  internal_check(longest >= 1, "room for no token of a prompt", longest);
  std::vector<std::int32_t> tokens = tokens_of(text, name);
  const auto count = static_cast<std::int64_t>(tokens.size());
  verify(truncate || count <= longest, ErrorKind::data,
         "{}: {}, but the model's context has room for {}; shorten it, or let its beginning be left out (--truncate)",
         name, counted(count, "token"), longest);
  if (count > longest) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(longest));
  if (rules_.for_encoder) return {.tokens = {rules_.decoder_start}, .encoder_tokens = std::move(tokens)};
  return {.tokens = std::move(tokens)};
}

}  // namespace megatron
