#include "base/text/utf8.h"

#include <cstring>

namespace megatron {

std::size_t first_invalid_utf8(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t block[4];
    if (text.size() - i >= sizeof(block)) {
      std::memcpy(block, text.data() + i, sizeof(block));
      if (((block[0] | block[1] | block[2] | block[3]) & kHighBits) == 0) {
        i += sizeof(block);
        continue;
      }
    }
    // Text that is not plain ASCII is walked to the next block's beginning at least.
    for (const std::size_t stop = i + sizeof(block); i < stop && i < text.size();) {
      const CodePoint next = first_code_point(text.substr(i));
      if (next.bytes == 0) return i;
      i += next.bytes;
    }
  }
  return text.size();
}

CodePoint first_code_point(std::string_view text) {
  const auto byte = [text](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [](std::uint32_t b) { return (b & 0xC0u) == 0x80u; };
  if (text.empty()) return {};
  const std::uint32_t first = byte(0), second = byte(1);
  if (first < 0x80) return {first, 1};
  if (!continues(second)) return {};
  if (first >= 0xC2 && first <= 0xDF) return {(first & 0x1Fu) << 6 | (second & 0x3Fu), 2};
  const std::uint32_t third = byte(2), fourth = byte(3);
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0, surrogate = first == 0xED && second > 0x9F;
    if (overlong || surrogate || !continues(third)) return {};
    return {(first & 0x0Fu) << 12 | (second & 0x3Fu) << 6 | (third & 0x3Fu), 3};
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90, beyond = first == 0xF4 && second > 0x8F;
    if (overlong || beyond || !continues(third) || !continues(fourth)) return {};
    return {(first & 0x07u) << 18 | (second & 0x3Fu) << 12 | (third & 0x3Fu) << 6 | (fourth & 0x3Fu), 4};
  }
  return {};
}

void append_utf8(std::string& text, std::uint32_t code_point) {
  const auto put = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0u | code_point >> 6);
    put(0x80u | (code_point & 0x3Fu));
  } else if (code_point < 0x10000) {
    put(0xE0u | code_point >> 12);
    put(0x80u | (code_point >> 6 & 0x3Fu));
    put(0x80u | (code_point & 0x3Fu));
  } else {
    put(0xF0u | code_point >> 18);
    put(0x80u | (code_point >> 12 & 0x3Fu));
    put(0x80u | (code_point >> 6 & 0x3Fu));
    put(0x80u | (code_point & 0x3Fu));
  }
}

}  // namespace megatron
