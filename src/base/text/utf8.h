// UTF-8: what is well formed (no overlong forms, no surrogates, nothing above U+10FFFF), and single code points.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

/// Offset of the first byte that is not part of valid UTF-8; text.size() if all is.
std::size_t first_invalid_utf8(std::string_view text);

struct CodePoint {
  std::uint32_t value = 0;
  std::uint32_t bytes = 0;  ///< 1 .. 4; 0 if no well-formed code point is there
};
/// The code point that `text` begins with.
CodePoint first_code_point(std::string_view text);

/// Whether a byte continues a character.
inline bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}
/// Characters of well-formed text.
inline std::size_t characters_of(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues_character));
}

/// `code_point` must be one: at most 0x10FFFF and no surrogate.
void append_utf8(std::string& text, std::uint32_t code_point);

}  // namespace megatron
