// The 256 characters that byte-level vocabularies write bytes with: 33-126, 161-172 and 174-255 stand for themselves,
// the other bytes are 256, 257, ... in order.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/utf8.h"

namespace megatron {

class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      characters_[byte] = itself ? byte : next++;
      bytes_[characters_[byte]] = static_cast<int>(byte);
    }
  }

  /// Nothing if a character is none of the 256.
  std::optional<std::string> bytes_of(std::string_view written) const {
    std::string bytes;
    while (!written.empty()) {
      const CodePoint character = first_code_point(written);
      if (character.value >= bytes_.size() || bytes_[character.value] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(bytes_[character.value]));
      written.remove_prefix(character.bytes);
    }
    return bytes;
  }

  std::string written(std::string_view bytes) const {
    std::string text;
    for (const char byte : bytes) append_utf8(text, characters_[static_cast<unsigned char>(byte)]);
    return text;
  }

  /// The character of a byte; that of a greater byte may be smaller.
  std::uint32_t character_of(unsigned char byte) const { return characters_[byte]; }

 private:
  std::array<std::uint32_t, 256> characters_;
  std::array<int, 256 + 68> bytes_;
};

}  // namespace megatron
