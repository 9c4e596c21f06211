#include "data/tokenizer_kinds/unigram_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "base/text/utf8.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer_kinds/best_pieces.h"

namespace megatron {

namespace {

std::uint64_t hash_of(const UnigramVocabulary& vocabulary) {
  std::string all = fmt::format("tokenizer unigram: bytes {} split {} drop {} prefix {} unknown {};",
                                vocabulary.byte_fallback, vocabulary.split_at_spaces, vocabulary.drop_spaces,
                                static_cast<int>(vocabulary.prefix), vocabulary.special.unk);
  for (const std::string& token : vocabulary.tokens) all += fmt::format("{}:{},", token.size(), token);
  for (const double score : vocabulary.scores) all += fmt::format("{:016x},", std::bit_cast<std::uint64_t>(score));
  for (const NormalizerStep& step : vocabulary.normalizer) {
    all += fmt::format("step {} {}:{} {} {} {:016x};", static_cast<int>(step.kind), step.content.size(), step.content,
                       step.left, step.right, step.map.hash());
  }
  for (const AddedToken& token : vocabulary.added) {
    all += fmt::format("added {}{}{}{}{}{},", token.id, token.special, token.single_word, token.lstrip, token.rstrip,
                       token.normalized ? "normalized" : "");
  }
  return hash_name(all + fmt::format("end of document {}", vocabulary.special.eos));
}

/// Parts of a tokenizer that its Encoders need.
struct UnigramParts {
  const UnigramVocabulary& vocabulary;
  const AddedTokenSets& added;
  const PieceTrie& trie;
  double unknown_score;
};

class UnigramEncoder final : public Encoder {
 public:
  UnigramEncoder(const UnigramParts& parts, SpecialTokens special)
      : Encoder(special),
        parts_(parts),
        normalizer_(parts.vocabulary.normalizer),
        short_words_(kShortPieceBits),
        long_words_(kLongPieceBits) {
    byte_ids_.fill(-1);
    for (std::size_t id = 0; parts.vocabulary.byte_fallback && id < parts.vocabulary.scores.size(); ++id) {
      const auto byte = byte_of_piece(parts.vocabulary.tokens[id]);
      if (byte) byte_ids_[static_cast<unsigned char>(*byte)] = static_cast<std::int32_t>(id);
    }
  }

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    const auto add = [&](std::int32_t id, std::uint32_t part) { output.add(id, part); };
    const auto encode = [&](std::string_view part, PartBorders inside, bool at_front) {
      encode_part(part, at_front, inside, output);
    };
    parts_.added.split(text, borders, normalizer_, encode, add);
  }

  void encode_part(std::string_view text, bool at_front, PartBorders& borders, TokenOutput& output) {
    mark_spaces(text, at_front, borders);
    const std::string_view all = marked_;
    for (std::size_t at = 0; at < all.size();) {
      std::size_t end = all.size();
      if (parts_.vocabulary.split_at_spaces) end = std::min(all.find(kSpaceMark, at + 1), all.size());
      verify(end - at <= kLongestPiece, ErrorKind::data, "a word of {} bytes: they may have at most {}", end - at,
             kLongestPiece);
      encode_word(all.substr(at, end - at), all.size() - at, output.ids);
      if (output.part_of != nullptr) find_parts(all.substr(at, end - at), borders, output);
      at = end;
    }
  }

  /// The parts of a word's tokens, which have been added.
  void find_parts(std::string_view word, const PartBorders& borders, TokenOutput& output) {
    const auto begin = static_cast<std::size_t>(word.data() - marked_.data());
    const std::uint32_t part = borders.part_at(begin);
    if (part == borders.part_at(begin + word.size() - 1)) return output.part_of->resize(output.ids.size(), part);
    std::vector<std::int32_t> same;
    std::vector<std::size_t> ends;
    ends_ = &ends;
    compute(word, same);
    ends_ = nullptr;
    for (const std::size_t end : ends) output.part_of->push_back(borders.part_at(end - 1));
  }

  /// The text with kSpaceMark for spaces and in front, into marked_.
  void mark_spaces(std::string_view text, bool at_front, PartBorders& borders) {
    const UnigramVocabulary& vocabulary = parts_.vocabulary;
    marked_.clear();
    bool begins = vocabulary.drop_spaces || vocabulary.prefix == PrefixSpace::always ||
                  (vocabulary.prefix == PrefixSpace::first && at_front);  // a text, or a word
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const CodePoint c = byte < 0x80 ? CodePoint{byte, 1} : first_code_point(text.substr(at, 4));
      borders.move(at + c.bytes - 1, marked_.size());
      if (vocabulary.drop_spaces && has_white_space_property(c.value)) {
        begins = true;
      } else if (c.value == ' ') {
        marked_ += kSpaceMark;
        begins = false;
      } else {
        if (begins && c.value != kSpaceMarkValue) marked_ += kSpaceMark;
        begins = false;
        marked_.append(text, at, c.bytes);
      }
      at += c.bytes;
    }
    borders.end_moves(marked_.size());
  }

  void encode_word(std::string_view word, std::size_t readable, std::vector<std::int32_t>& ids) {
    if (word.size() <= ShortPieces::kBytes) [[likely]] {
      look_up(short_words_, word, readable, ids);
    } else if (word.size() <= LongPieces::kBytes) {
      look_up(long_words_, word, readable, ids);
    } else {
      compute(word, ids);
    }
  }

  template <class Cache>
  void look_up(Cache& cache, std::string_view word, std::size_t readable, std::vector<std::int32_t>& ids) {
    const auto key = Cache::key_of(word.data(), word.size(), readable);
    if (const auto* entry = cache.find(key)) [[likely]] {
      ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->count);
      return;
    }
    const std::size_t before = ids.size();
    compute(word, ids);
    const auto made = std::span(ids).subspan(before);
    if (made.size() <= Cache::kIds) cache.insert(key, made);
  }

  void compute(std::string_view word, std::vector<std::int32_t>& ids) {
    const auto score_of = [&](std::int32_t id, std::size_t) {
      return parts_.vocabulary.scores[static_cast<std::size_t>(id)];
    };
    const std::int32_t unknown = parts_.vocabulary.special.unk;
    for_each_token(best_.find(word, parts_.trie, score_of, unknown, parts_.unknown_score), word, unknown, byte_ids_,
                   [&](std::int32_t id, std::size_t, std::size_t end) {
                     ids.push_back(id);
                     if (ends_ == nullptr) return;
                     ends_->push_back(static_cast<std::size_t>(word.data() - marked_.data()) + end);
                   });
  }

  static constexpr std::uint32_t kSpaceMarkValue = 0x2581;

  UnigramParts parts_;
  std::vector<std::size_t>* ends_ = nullptr;  // where the computed tokens end, if that is of interest
  TextNormalizer normalizer_;
  ShortPieces short_words_;
  LongPieces long_words_;
  ByteIds byte_ids_{};
  std::string marked_;
  BestPieces<double> best_;
};

}  // namespace

UnigramTokenizer::UnigramTokenizer(UnigramVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      added_(vocabulary_.added, vocabulary_.special.eos, vocabulary_.normalizer),
      is_special_(vocabulary_.tokens.size()),
      hash_(hash_of(vocabulary_)) {
  is_special_[static_cast<std::size_t>(vocabulary_.special.unk)] = true;
  for (const AddedToken& token : vocabulary_.added) {
    if (token.special) is_special_[static_cast<std::size_t>(token.id)] = true;
  }
  std::vector<std::pair<std::string_view, std::int32_t>> pieces;
  double worst = vocabulary_.scores.front();
  for (std::size_t id = 0; id < vocabulary_.scores.size(); ++id) {
    worst = std::min(worst, vocabulary_.scores[id]);
    if (!is_special_[id]) pieces.emplace_back(vocabulary_.tokens[id], static_cast<std::int32_t>(id));
  }
  trie_ = PieceTrie(std::move(pieces));
  unknown_score_ = worst - kUnknownPenalty;
}

std::unique_ptr<Encoder> UnigramTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<UnigramEncoder>(UnigramParts{vocabulary_, added_, trie_, unknown_score_}, special);
}

std::string UnigramTokenizer::decode_next(std::int32_t id) const {
  verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the {} tokenizer's 0 .. {}", id, name(),
         vocab_size() - 1);
  if (id == eod_id()) return "";
  const std::string& written = token(id);
  if (is_special_[static_cast<std::size_t>(id)]) return written;
  if (vocabulary_.byte_fallback) {
    if (const auto byte = byte_of_piece(written)) return std::string(1, *byte);
  }
  return spaces_written(written);
}

std::string UnigramTokenizer::decode(std::span<const std::int32_t> ids) const {
  return joined(ids, vocabulary_.prefix != PrefixSpace::never, *this);
}

std::vector<std::uint8_t> UnigramTokenizer::continues() const {
  std::vector<std::uint8_t> result;
  for (const std::string& written : vocabulary_.tokens) result.push_back(written.starts_with(kSpaceMark) ? 0 : 1);
  for (const AddedToken& token : vocabulary_.added) {
    if (token.special && token.id != vocabulary_.special.unk) result[static_cast<std::size_t>(token.id)] = 0;
  }
  clear_special(vocabulary_.special, result);
  return result;
}

}  // namespace megatron
