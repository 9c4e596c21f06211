// BestPieces: the pieces of a text whose scores have the largest sum, for models of type Unigram; and the tokens that
// pieces stand for. Holds memory that is used again: one for each Encoder. Internal to src/data/tokenizer_kinds.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/text/utf8.h"
#include "data/tokenizer/piece_trie.h"

namespace megatron {

/// Files with scores further from 0 are refused.
inline constexpr float kLargestPieceScore = 1e9f;
/// How far an unknown character's score is below that of the worst piece, as SentencePiece has it.
inline constexpr float kUnknownPenalty = 10;

/// Bytes of the first character of a text; 1 where that is none.
inline std::size_t character_bytes(std::string_view text) {
  return std::max(1u, first_code_point(text.substr(0, 4)).bytes);
}

/// A piece that ends there; it begins where the one before it ends.
struct PieceEnd {
  std::size_t end = 0;
  std::int32_t id = 0;
};

/// Ids of the pieces that stand for bytes; -1: none.
using ByteIds = std::array<std::int32_t, 256>;

/// Calls use(id, begin, end) for each token that the pieces of `text` stand for. Unknown characters in a row are one
/// unknown token, or a token for each byte if all of them have one.
template <class Use>
void for_each_token(const std::vector<PieceEnd>& pieces, std::string_view text, std::int32_t unknown,
                    const ByteIds& byte_ids, const Use& use) {
  const auto id_of = [&](char c) { return byte_ids[static_cast<unsigned char>(c)]; };
  std::size_t begin = 0;
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    const auto [end, id] = *piece;
    if (id == unknown && piece + 1 != pieces.end() && (piece + 1)->id == unknown) continue;
    const std::string_view written = text.substr(begin, end - begin);
    if (id == unknown && std::all_of(written.begin(), written.end(), [&](char c) { return id_of(c) >= 0; })) {
      for (; begin < end; ++begin) use(id_of(text[begin]), begin, begin + 1);
    } else {
      use(id, begin, end);
    }
    begin = end;
  }
}

/// Scores are summed up as `Score`, which decides between ways that are nearly equal.
template <class Score>
class BestPieces {
 public:
  /// Viterbi's algorithm: the best way to every place, from the front. score_of(id, bytes) is a piece's score; a
  /// character that is no piece has the id `unknown`. The result is overwritten by the next call.
  template <class ScoreOf>
  const std::vector<PieceEnd>& find(std::string_view text, const PieceTrie& trie, const ScoreOf& score_of,
                                    std::int32_t unknown, Score unknown_score) {
    best_.assign(text.size() + 1, {});
    std::size_t furthest = 0;
    for (std::size_t at = 0; at < text.size();) {
      if constexpr (std::is_same_v<Score, float>) rebase(at, furthest);
      const Score so_far = best_[at].score;
      const std::size_t character = character_bytes(text.substr(at));
      bool is_known = false;
      const auto offer = [&](std::size_t length, std::int32_t id, Score score) {
        furthest = std::max(furthest, at + length);
        Best& there = best_[at + length];
        if (there.length != 0 && score <= there.score) return;
        there = {score, id, static_cast<std::uint32_t>(length)};
      };
      trie.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
        offer(length, id, so_far + score_of(id, length));
        is_known = is_known || length == character;
      });
      if (!is_known) offer(character, unknown, so_far + unknown_score);
      at += character;
    }
    path_.clear();
    for (std::size_t end = text.size(); end > 0; end -= best_[end].length) path_.push_back({end, best_[end].id});
    std::reverse(path_.begin(), path_.end());
    return path_;
  }

 private:
  struct Best {
    Score score = 0;
    std::int32_t id = 0;
    std::uint32_t length = 0;  // bytes of the last piece on the way; 0: no way is known yet
  };

  /// Large sums lose digits: from `at` on, they begin again at 0.
  void rebase(std::size_t at, std::size_t furthest) {
    constexpr Score kLargestSum = 100000;
    const Score sum = best_[at].score;
    if (std::abs(sum) <= kLargestSum) return;
    for (std::size_t i = at; i <= furthest; ++i) {
      if (best_[i].length != 0) best_[i].score -= sum;
    }
  }

  std::vector<Best> best_;
  std::vector<PieceEnd> path_;
};

}  // namespace megatron
