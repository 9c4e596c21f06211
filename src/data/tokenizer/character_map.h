// CharacterMap: what SentencePiece's normalizer replaces characters with (precompiled_charsmap): a trie of strings in a
// double array, and the strings that they become. All that a lookup can reach is checked when it is read. Immutable:
// safe to use from several threads.
//
//   u32 bytes of the array, the array (u32 units), replacements that end with NUL
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// Bytes that a character may become.
inline constexpr std::size_t kLongestReplacement = 256;
inline constexpr std::size_t kLongestReplaced = 256;  ///< bytes of a string that is replaced; longer ones in the map
                                                      ///< are not found

class CharacterMap {
 public:
  CharacterMap() = default;  ///< an empty map
  /// nullopt if these are not the bytes of such a map.
  static std::optional<CharacterMap> read(std::string_view bytes);

  /// Replacement of the shortest string in the map that `text` begins with; nullopt if there is none.
  std::optional<std::string_view> shortest(std::string_view text) const { return found(text, true).first; }
  /// Replacement of the longest one, and the bytes of that string.
  std::pair<std::optional<std::string_view>, std::size_t> longest(std::string_view text) const {
    return found(text, false);
  }

  std::uint64_t hash() const;  ///< depends on the map's contents

 private:
  std::pair<std::optional<std::string_view>, std::size_t> found(std::string_view text, bool shortest) const;
  bool is_valid() const;
  bool is_valid_leaf(std::size_t at) const;

  std::vector<std::uint32_t> units_ = {0};
  std::string replacements_;
};

}  // namespace megatron
