#include "data/tokenizer_kinds/merge_rules.h"

#include <algorithm>
#include <bit>

#include "base/core/error.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

namespace {

constexpr std::size_t kShortPiece = 96;  ///< bytes up to which n² / 2 plain steps are cheaper than keeping order

}  // namespace

MergeRules::MergeRules(const BpeVocabulary& vocabulary) : byte_ids_(vocabulary.byte_ids) {
  lacks_bytes_ = std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end();
  slots_.assign(std::bit_ceil(2 * vocabulary.merges.size() + 2), kEmpty);
  mask_ = slots_.size() - 1;
  for (const BpeMerge& merge : vocabulary.merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t slot = slot_of(key);
    while (slots_[slot] != kEmpty) slot = (slot + 1) & mask_;
    slots_[slot] = key << kRankBits | results_.size();
    results_.push_back(merge.result);
  }
}

void MergeRules::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (lacks_bytes_) check_bytes(piece);
  if (piece.size() <= kShortPiece) return encode_short(piece, ids);
  verify(piece.size() <= kLongestPiece, ErrorKind::data,
         "a word of {} bytes without a space or another break in it, longer than {} MiB", piece.size(),
         kLongestPiece >> 20);
  std::vector<std::int32_t> symbols(piece.size());
  std::transform(piece.begin(), piece.end(), symbols.begin(),
                 [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; });
  encode_long(*this, std::move(symbols), ids);
}

void MergeRules::check_bytes(std::string_view piece) const {
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    verify(byte_ids_[byte] >= 0, ErrorKind::data,
           "the text has a byte 0x{:02x}, which is not UTF-8, and this vocabulary has no token for it", byte);
  }
}

void MergeRules::encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShortPiece> symbols;
  std::array<std::uint32_t, kShortPiece> ranks;  // for each symbol, of its merge with the next one
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const std::size_t best = static_cast<std::size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count) - 1) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    symbols[best] = result_of(ranks[best]);
    --count;
    for (std::size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1];
    if (best > 0) ranks[best - 1] = rank_of(symbols[best - 1], symbols[best]);
    if (best + 1 < count) ranks[best] = rank_of(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace megatron
