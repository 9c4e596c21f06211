#include "data/samples/chat_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/core/error.h"

namespace megatron {

namespace {

const RoleTemplate& role_of(const ChatTemplate& chat, std::string_view name) {
  const auto* const role =
      std::find_if(chat.begin(), chat.end(), [&](const RoleTemplate& each) { return each.role == name; });
  internal_check(role != chat.end(), "a message of a role that the template does not have");
  return *role;
}

const RoleTemplate& assistant_of(const ChatTemplate& chat) {
  return role_of(chat, "assistant");
}

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string trimmed_end(const std::string& text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

/// Tokens of `parts`, which an answer follows.
std::vector<std::int32_t> tokens_before_answer(std::vector<TextPart> parts, Encoder& encoder) {
  const auto answer = static_cast<std::uint32_t>(parts.size());
  parts.push_back({"a"});  // as answers begin, with a letter
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> part_of;
  encoder.encode_parts(parts, ids, part_of);
  ids.resize(static_cast<std::size_t>(std::find(part_of.begin(), part_of.end(), answer) - part_of.begin()));
  return ids;
}

/// Whether the tokens of a template's text end with the end of the document.
bool ends_document(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> part_of;
  tokenizer.make_encoder()->encode_parts(std::array{TextPart{text, SpecialTokens::tokens}}, ids, part_of);
  return !ids.empty() && ids.back() == tokenizer.eod_id();
}

/// In single quotes. Jinja reads escapes as Python does.
std::string jinja_string(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      result += std::string("\\") + c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + "'";
}

/// The text in front of an answer that a prompt ends with: all of it, or without the spaces at its end where the
/// tokenizer makes them a part of the answer's first token.
std::string prompt_ending(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const std::string& prefix = assistant_of(chat).prefix;
  const std::string shorter = prefix.substr(0, prefix.find_last_not_of(' ') + 1);
  if (shorter.size() == prefix.size()) return prefix;
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder();
  const auto tokens = [&](const std::string& text) {
    return tokens_before_answer({TextPart{text, SpecialTokens::tokens}}, *encoder);
  };
  std::vector<std::int32_t> whole;
  std::vector<std::uint32_t> part_of;
  encoder->encode_parts(std::array{TextPart{shorter, SpecialTokens::tokens}}, whole, part_of);
  return tokens(prefix) == whole ? shorter : prefix;
}

}  // namespace

std::vector<std::int32_t> chat_prompt(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                      Encoder& encoder) {
  std::vector<TextPart> parts;
  for (const ChatMessage& message : messages) {
    const RoleTemplate& role = role_of(chat, message.role);
    parts.push_back({role.prefix, SpecialTokens::tokens});
    parts.push_back({message.content, SpecialTokens::text});
    parts.push_back({role.suffix, SpecialTokens::tokens});
  }
  parts.push_back({assistant_of(chat).prefix, SpecialTokens::tokens});
  return tokens_before_answer(std::move(parts), encoder);
}

std::optional<std::int32_t> end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const std::string& suffix = assistant_of(chat).suffix;
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder();
  const auto first = [&](SpecialTokens special) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> part_of;
    encoder->encode_parts(std::array{TextPart{suffix, special}}, ids, part_of);
    return ids.empty() ? -1 : ids.front();
  };
  const std::int32_t id = first(SpecialTokens::tokens);
  return id != first(SpecialTokens::text) ? std::optional(id) : std::nullopt;
}

std::string end_of_turn_text(const ChatTemplate& chat) {
  const std::string &suffix = assistant_of(chat).suffix, shorter = trimmed_end(suffix);
  if (!shorter.empty()) return shorter;
  return suffix + trimmed_end(role_of(chat, "user").prefix);
}

std::string message_of(std::string made, const ChatTemplate& chat, const Tokenizer& tokenizer) {
  std::string suffix = assistant_of(chat).suffix;
  // It is not shown, nor the white space after it that it may take.
  if (ends_document(suffix, tokenizer)) suffix.resize(std::min(suffix.size(), suffix.rfind(tokenizer.eod_text())));
  if (made.ends_with(suffix)) made.resize(made.size() - suffix.size());
  return made;
}

namespace {

/// Names in a text that vocabularies give their special tokens: <s>, </s>, <bos>, <eos>, Gemma's turns, <|NAME|>.
std::vector<std::string> special_names_in(std::string_view text) {
  constexpr std::array<std::string_view, 6> kNames = {"<s>",          "</s>", "<bos>", "<eos>", "<start_of_turn>",
                                                      "<end_of_turn>"};
  std::vector<std::string> names;
  for (std::size_t begin = 0; (begin = text.find('<', begin)) != std::string_view::npos; ++begin) {
    const std::string_view name = text.substr(begin, text.find('>', begin) - begin + 1);
    const bool barred = name.size() > 4 && name.starts_with("<|") && name.ends_with("|>");
    if (barred || std::find(kNames.begin(), kNames.end(), name) != kNames.end()) names.emplace_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> foreign_special_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder();
  const auto tokens = [&](const std::string& text, SpecialTokens special) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> part_of;
    encoder->encode_parts(std::array{TextPart{text, special}}, ids, part_of);
    return ids;
  };
  std::vector<std::string> notes;
  for (const RoleTemplate& role : chat) {
    for (const auto& [place, text] : {std::pair("prefix", &role.prefix), std::pair("suffix", &role.suffix)}) {
      for (const std::string& name : special_names_in(*text)) {
        if (tokens(name, SpecialTokens::tokens) != tokens(name, SpecialTokens::text)) continue;
        notes.push_back(fmt::format(
            "task.{}_{} has \"{}\", which is no special token of this vocabulary and is learned as text; its "
            "end-of-document token is \"{}\"",
            role.role, place, name, tokenizer.eod_text()));
      }
    }
  }
  return notes;
}

std::string jinja_template(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  std::string text = "{% for message in messages %}";
  for (const RoleTemplate& role : chat) {
    text += fmt::format("{{% {} message['role'] == '{}' %}}{{{{ {} + message['content'] + {} }}}}",
                        &role == chat.data() ? "if" : "elif", role.role, jinja_string(role.prefix),
                        jinja_string(role.suffix));
  }
  text +=
      "{% else %}{{ raise_exception('the role ' + message['role'] + ' is none of system, user and assistant') }}"
      "{% endif %}{% endfor %}";
  std::vector<std::string> ended;  // roles whose messages end with the end of the document already
  for (const RoleTemplate& role : chat) {
    if (ends_document(role.suffix, tokenizer)) ended.push_back(jinja_string(role.role));
  }
  const std::string otherwise =
      ended.empty() ? "else"
                    : fmt::format("elif not messages or messages[-1]['role'] not in [{}]", fmt::join(ended, ", "));
  return text + fmt::format("{{% if add_generation_prompt %}}{{{{ {} }}}}{{% {} %}}{{{{ {} }}}}{{% endif %}}",
                            jinja_string(prompt_ending(chat, tokenizer)), otherwise,
                            jinja_string(tokenizer.eod_text()));
}

}  // namespace megatron
