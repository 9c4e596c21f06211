// UTF-8: what is well formed (no overlong forms, no surrogates, nothing above U+10FFFF), and single code points.
#pragma once

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

/// `code_point` must be one: at most 0x10FFFF and no surrogate.
void append_utf8(std::string& text, std::uint32_t code_point);

}  // namespace megatron
