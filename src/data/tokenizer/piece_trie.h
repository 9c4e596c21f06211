// PieceTrie: which pieces a text begins with. Five bytes and an id for each distinct beginning of a piece; immutable.
// Internal to src/data/tokenizer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

class PieceTrie {
 public:
  PieceTrie() = default;
  /// Pieces, none empty and none twice, and their ids.
  explicit PieceTrie(std::vector<std::pair<std::string_view, std::int32_t>> pieces);

  /// Calls use(length, id) for each piece that `text` begins with, the shortest first.
  template <class Use>
  void for_each_prefix(std::string_view text, const Use& use) const {
    if (text.empty() || ids_.empty()) return;
    std::uint32_t node = roots_[static_cast<unsigned char>(text[0])];
    for (std::size_t length = 1; node != 0; ++length) {
      if (ids_[node] >= 0) use(length, ids_[node]);
      if (length == text.size()) return;
      node = child(node, static_cast<std::uint8_t>(text[length]));
    }
  }

 private:
  /// 0 if there is none.
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const {
    const auto begin = bytes_.begin() + first_child_[node], end = bytes_.begin() + first_child_[node + 1];
    const auto found = std::lower_bound(begin, end, byte);
    return found != end && *found == byte ? static_cast<std::uint32_t>(found - bytes_.begin()) : 0;
  }

  // By node, in the order of their depth, so that children of a node follow each other; 0 is the root.
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int32_t> ids_;  // -1: only the beginning of a piece
  std::vector<std::uint32_t> first_child_;
  std::array<std::uint32_t, 256> roots_{};
};

}  // namespace megatron
