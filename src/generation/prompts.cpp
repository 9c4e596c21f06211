#include "generation/prompts.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/text.h"
#include "text/utf8.h"

namespace megatron {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string prompt_of_json(std::string_view line, const std::string& where) {
  // The parser would take it for the end of the line.
  verify(line.find('\0') == std::string_view::npos, ErrorKind::data, "{}: damaged JSON, with a zero byte", where);
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  verify(!object.is_discarded(), ErrorKind::data,
         "{}: damaged JSON; a line that begins with {{ is a JSON object with \"prompt\" or \"text\"", where);
  for (const char* key : {"prompt", "text"}) {
    const auto found = object.find(key);
    if (found == object.end()) continue;
    verify(found->is_string(), ErrorKind::data, "{}: \"{}\" is no string", where, key);
    return found->get<std::string>();
  }
  fail(ErrorKind::data, "{}: the object has neither \"prompt\" nor \"text\"", where);
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view contents, const std::string& name) {
  if (contents.starts_with(kByteOrderMark)) contents.remove_prefix(kByteOrderMark.size());
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
    : begin_(tokenizer.eod_id()), rules_(rules), encoder_(tokenizer.make_encoder(rules.special)) {}

std::vector<std::int32_t> PromptEncoder::encode(const std::string& text, std::int64_t longest, bool truncate,
                                                const std::string& name) {
  internal_check(longest >= 1, "room for no token of a prompt");
  const std::size_t bad = first_invalid_utf8(text);
  verify(bad == text.size(), ErrorKind::data, "{}: not valid UTF-8 (byte {})", name, bad + 1);
  std::vector<std::int32_t> tokens;
  if (rules_.begin_token) tokens.push_back(begin_);
  encoder_->encode(text, tokens);
  verify(!tokens.empty(), ErrorKind::data, "{}: empty, and --no-begin-token leaves no token to start with", name);
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count <= longest) return tokens;
  verify(truncate, ErrorKind::data,
         "{}: {}, but the model's context has room for {}; shorten it, or let its beginning be left out (--truncate)",
         name, counted(count, "token"), longest);
  tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(longest));
  return tokens;
}

}  // namespace megatron
