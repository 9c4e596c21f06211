// MergeRules: the merges of a byte-level BPE, applied to one piece of text.
//
// What is done is defined as: as long as some two neighbours have a merge, do the one of the lowest rank, the leftmost
// among equals. Short pieces are searched plainly; long ones keep their merges in order (MergeQueue), so that the time
// is at most n log n for a piece of n bytes whatever it holds, with about 24 n bytes of memory. Immutable: safe to use
// from several threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_vocabulary.h"

namespace megatron {

inline constexpr std::uint32_t kNoRank = UINT32_MAX;

struct MergeRule {
  std::uint32_t rank = kNoRank;
  std::int32_t result = 0;
};

class MergeRules {
 public:
  explicit MergeRules(const BpeVocabulary& vocabulary);

  /// Appends the ids of a piece below 4 GiB.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

  /// The merge of two neighbours; rank kNoRank if they have none.
  MergeRule find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Slot& found = slots_[slot];
      if (found.key == key || found.rule.rank == kNoRank) return found.key == key ? found.rule : MergeRule{};
    }
  }

 private:
  struct Slot {
    std::uint64_t key = UINT64_MAX;
    MergeRule rule;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> 20) & mask_;
  }
  void encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  std::size_t mask_ = 0;
};

/// The same as MergeRules::encode for a piece given as ids of its bytes, in time n log n. For long pieces.
void encode_long(const MergeRules& rules, std::vector<std::int32_t> symbols, std::vector<std::int32_t>& ids);

}  // namespace megatron
