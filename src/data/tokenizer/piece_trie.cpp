#include "data/tokenizer/piece_trie.h"

namespace megatron {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, std::int32_t>> pieces) {
  std::sort(pieces.begin(), pieces.end());
  struct Group {
    std::size_t begin, end;  // the pieces that begin like this node
  };
  std::vector<Group> level = {{0, pieces.size()}}, next;
  bytes_.push_back(0);
  ids_.push_back(-1);
  for (std::size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (auto [begin, end] : level) {
      first_child_.push_back(static_cast<std::uint32_t>(bytes_.size()));
      while (begin < end && pieces[begin].first.size() == depth) ++begin;  // the node itself
      while (begin < end) {
        const char byte = pieces[begin].first[depth];
        std::size_t stop = begin + 1;
        while (stop < end && pieces[stop].first[depth] == byte) ++stop;
        bytes_.push_back(static_cast<std::uint8_t>(byte));
        ids_.push_back(pieces[begin].first.size() == depth + 1 ? pieces[begin].second : -1);
        next.push_back({begin, stop});
        begin = stop;
      }
    }
  }
  first_child_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  for (std::uint32_t node = first_child_[0]; node < first_child_[1]; ++node) roots_[bytes_[node]] = node;
}

}  // namespace megatron
