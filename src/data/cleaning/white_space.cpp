#include "data/cleaning/white_space.h"

#include <algorithm>
#include <cstddef>

#include "base/text/utf8.h"
#include "data/unicode/character_classes.h"

namespace megatron {

namespace {

/// Bytes of the white space, other than a line feed, that `text` begins with; 0 if none is there. Text that is not of
/// one width, as U+3000, is in no way special here.
std::size_t blank_at(std::string_view text) {
  const char c = text.front();
  if (c == ' ' || c == '\t' || c == '\f' || c == '\v' || c == '\r') return 1;
  const auto first = static_cast<unsigned char>(c);
  if (first != 0xC2 && first != 0xE1 && first != 0xE2 && first != 0xE3) return 0;
  const CodePoint code = first_code_point(text);
  return code.bytes != 0 && CharacterClasses::instance().of(code.value) == CharacterClass::space ? code.bytes : 0;
}

}  // namespace

std::string_view tidied_white_space(std::string_view text, std::string& buffer) {
  buffer.clear();
  std::size_t line_feeds = 0;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') {
      ++line_feeds;
      space = false;
      ++at;
    } else if (const std::size_t blank = blank_at(text.substr(at, 4)); blank > 0) {
      space = true;
      at += blank;
    } else {
      if (!buffer.empty()) {
        if (line_feeds > 0)
          buffer.append(line_feeds == 1 ? 1 : 2, '\n');
        else if (space)
          buffer.push_back(' ');
      }
      line_feeds = 0;
      space = false;
      do buffer.push_back(text[at++]);
      while (at < text.size() && static_cast<unsigned char>(text[at]) > ' ' &&
             static_cast<unsigned char>(text[at]) < 0x80);
    }
  }
  return buffer == text ? text : std::string_view(buffer);
}

std::string megatron_white_space(std::string_view text) {
  const CharacterClasses& classes = CharacterClasses::instance();
  std::string out;
  bool after_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t spaces = std::min(text.find_first_not_of(' ', at), text.size()) - at;
    const std::size_t feeds = after_word ? std::min(text.find_first_not_of('\n', at), text.size()) - at : 0;
    if (spaces > 1 || feeds > 0) {
      at += spaces > 1 ? spaces : feeds;
      // Two spaces after line feeds are a separate run only where the first of them is not taken here.
      if (feeds > 0 && at < text.size() && text[at] == ' ') ++at;
      out.push_back(' ');
      after_word = false;
      continue;
    }
    const CodePoint c = first_code_point(text.substr(at, 4));
    const CharacterClass of = c.bytes == 0 ? CharacterClass::other : classes.of(c.value);
    after_word = text[at] == '_' || of == CharacterClass::letter || of == CharacterClass::digit;
    const std::size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    out.append(text, at, bytes);
    at += bytes;
  }
  return out;
}

}  // namespace megatron
