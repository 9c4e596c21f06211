#include "tokenizer/merge_rules.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace megatron {

namespace {

constexpr std::size_t kShortPiece = 96;  ///< bytes up to which n² / 2 plain steps are cheaper than keeping order

}  // namespace

MergeRules::MergeRules(const BpeVocabulary& vocabulary) {
  byte_ids_.fill(-1);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.size() == 1) byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<std::int32_t>(id);
  }
  slots_.resize(std::bit_ceil(2 * vocabulary.merges.size() + 2));
  mask_ = slots_.size() - 1;
  for (std::uint32_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const BpeMerge& merge = vocabulary.merges[rank];
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t slot = slot_of(key);
    while (slots_[slot].rule.rank != kNoRank) slot = (slot + 1) & mask_;
    slots_[slot] = {key, {rank, merge.result}};
  }
}

void MergeRules::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.size() <= kShortPiece) return encode_short(piece, ids);
  verify(piece.size() < UINT32_MAX, ErrorKind::data, "a word of {} bytes; at most {}", piece.size(), UINT32_MAX - 1);
  std::vector<std::int32_t> symbols(piece.size());
  std::transform(piece.begin(), piece.end(), symbols.begin(),
                 [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; });
  encode_long(*this, std::move(symbols), ids);
}

void MergeRules::encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShortPiece> symbols, results;
  std::array<std::uint32_t, kShortPiece> ranks;  // with the results, of the merge of a symbol with the one behind it
  std::size_t count = piece.size();
  const auto set = [&](std::size_t i, const MergeRule& rule) {
    ranks[i] = rule.rank;
    results[i] = rule.result;
  };
  for (std::size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) set(i, find(symbols[i], symbols[i + 1]));
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    if (best > 0) set(best - 1, find(symbols[best - 1], symbols[best]));
    if (best + 1 < count) set(best, find(symbols[best], symbols[best + 1]));
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

}  // namespace megatron
