// CharacterMap: what SentencePiece's normalizer replaces characters with (precompiled_charsmap): a trie of strings in a
// double array, and the strings that they become. All that a lookup can reach is checked when it is read, so that
// neither this class nor libsentencepiece leaves its arrays. Immutable: safe to use from several threads.
//
//   u32 bytes of the array, the array (u32 units), replacements that end with NUL
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Bytes that a character may become.
inline constexpr std::size_t kLongestReplacement = 256;

class CharacterMap {
 public:
  CharacterMap() = default;  ///< an empty map
  /// nullopt if these are not the bytes of such a map, or of one that libsentencepiece has no room for.
  static std::optional<CharacterMap> read(std::string_view bytes);

  /// Replacement of the shortest string in the map that `text` begins with; nullopt if there is none.
  std::optional<std::string_view> shortest(std::string_view text) const;

  std::uint64_t hash() const;  ///< depends on the map's contents

 private:
  bool is_valid() const;
  bool is_valid_leaf(std::size_t at) const;

  std::vector<std::uint32_t> units_ = {0};
  std::string replacements_;
};

}  // namespace megatron
