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

#include "data/tokenizer/bpe_vocabulary.h"

namespace megatron {

inline constexpr std::uint32_t kNoRank = UINT32_MAX;

class MergeRules {
 public:
  explicit MergeRules(const BpeVocabulary& vocabulary);

  /// Appends the ids of a piece; ErrorKind::data if it is longer than kLongestPiece (tokenizer.h), or has a byte that
  /// neither UTF-8 nor the vocabulary has.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

  /// The rank of the merge of two neighbours; kNoRank if they have none.
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const std::uint64_t found = slots_[slot];
      if (found >> kRankBits == key) return static_cast<std::uint32_t>(found & kRankMask);
      if (found == kEmpty) return kNoRank;
    }
  }
  /// Id of the token that the merge of this rank makes.
  std::int32_t result_of(std::uint32_t rank) const { return results_[rank]; }

 private:
  // A slot holds left and right, twenty bits each, and a rank of 24: small enough for the table to stay in the
  // processor's cache.
  static constexpr int kIdBits = 20, kRankBits = 24;
  static constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1, kEmpty = UINT64_MAX;
  static_assert(kMostTokens < std::uint64_t{1} << kIdBits, "an id and a rank must fit into a slot");

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << kIdBits | static_cast<std::uint64_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> 32) & mask_;
  }
  void check_bytes(std::string_view piece) const;
  void encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<std::int32_t> results_;  // by rank
  std::vector<std::uint64_t> slots_;   // open addressing, at most half full
  std::size_t mask_ = 0;
  bool lacks_bytes_ = false;
};

/// The same as MergeRules::encode for a piece given as ids of its bytes, in time n log n. For long pieces.
void encode_long(const MergeRules& rules, std::vector<std::int32_t> symbols, std::vector<std::int32_t>& ids);

}  // namespace megatron
