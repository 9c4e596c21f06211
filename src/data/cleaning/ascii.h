// Classes of single bytes of UTF-8: ASCII's letters, digits and white space, and the bytes that continue a character.
// Whatever the locale.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace megatron {

inline bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
/// Space, and tab to carriage return.
inline bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
inline char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

/// Whether a byte continues a character of UTF-8.
inline bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}
/// Characters of UTF-8 text.
inline std::size_t characters_of(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues_character));
}

}  // namespace megatron
