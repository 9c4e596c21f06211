#include "data/tokenizer_kinds/gpt2_tokenizer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/tokenizer_export.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer_kinds/rank_file.h"
#include "data/tokenizer_kinds/tokenizer_json.h"

namespace megatron {

namespace {

/// The vocabulary, the merges and the pattern: what decides about ids. Not the bytes of the files.
std::uint64_t hash_of(const BpeVocabulary& vocabulary) {
  std::string all = "tokenizer gpt2: pattern of GPT-2, Unicode 16.0;";
  for (const std::string& token : vocabulary.tokens) all += fmt::format("{}:{},", token.size(), token);
  for (const BpeMerge& merge : vocabulary.merges)
    all += fmt::format("{} {}>{},", merge.left, merge.right, merge.result);
  if (vocabulary.add_prefix_space) all += "space in front,";
  for (const bool normalized : {false, true}) {
    bool any = false;
    for (const AddedToken& token : vocabulary.added) {
      if (token.special || token.normalized != normalized || token.id == vocabulary.end_of_text) continue;
      all += fmt::format("found {}:{}={},", token.content.size(), token.content, token.id);
      if (token.single_word || token.lstrip || token.rstrip) {
        all += fmt::format("word {} spaces {} {},", token.single_word, token.lstrip, token.rstrip);
      }
      any = true;
    }
    if (any) all += "then ";
  }
  for (const NormalizerStep& step : vocabulary.normalizer) {
    all += written_normalizer({step}).at("type").get<std::string>() + ",";
  }
  if (vocabulary.ignore_merges) all += "tokens before merges,";
  if (vocabulary.pattern != SplitPattern::gpt2) all += fmt::format("split {},", static_cast<int>(vocabulary.pattern));
  return hash_name(all + fmt::format("end of document {}", vocabulary.end_of_text));
}

BpeVocabulary read(const std::string& vocab_file, const std::string& merge_file, std::int64_t rows,
                   const FolderSettings& folder) {
  if (!merge_file.empty()) {
    BpeVocabulary plain = read_bpe_vocabulary(vocab_file, merge_file);
    plain.add_prefix_space = folder.add_prefix_space.value_or(false);
    if (!plain.add_prefix_space && !folder.adds_to(plain.added)) return plain;
    folder.check_ids(vocab_file, plain.tokens);
    plain.added = folder.with(plain.added);
    return parse_tokenizer_json({vocab_file, write_tokenizer_json(plain)}, rows);
  }
  return is_rank_file(vocab_file) ? read_rank_file(vocab_file, rows) : read_tokenizer_json(vocab_file, rows, folder);
}

class Gpt2Encoder final : public Encoder {
 public:
  Gpt2Encoder(const BpeVocabulary& vocabulary, const MergeRules& rules, const AddedTokenSets& added,
              SpecialTokens special)
      : Encoder(special),
        vocabulary_(vocabulary),
        rules_(rules),
        added_(added),
        normalizer_(vocabulary.normalizer, InvalidBytes::kept),
        scanner_(vocabulary.pattern),
        short_pieces_(kShortPieceBits),
        long_pieces_(kLongPieceBits) {}

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    const auto add = [&](std::int32_t id, std::uint32_t part) { output.add(id, part); };
    const auto encode = [&](std::string_view part, const PartBorders& inside, bool) {
      encode_part(part, output.ids);
      if (output.part_of != nullptr) find_parts(part, inside, output.ids, *output.part_of);
    };
    added_.split(text, borders, normalizer_, encode, add);
  }

  bool gets_space(std::string_view text) const {
    return vocabulary_.add_prefix_space && !text.empty() && text[0] != ' ';
  }

  void encode_part(std::string_view text, std::vector<std::int32_t>& ids) {
    if (!gets_space(text)) return encode_pieces(text, ids);
    with_space_ = " ";
    with_space_ += text;
    encode_pieces(with_space_, ids);
  }

  /// The parts of the ids that follow those whose parts are known: their tokens are the bytes of `text`.
  void find_parts(std::string_view text, const PartBorders& borders, const std::vector<std::int32_t>& ids,
                  std::vector<std::uint32_t>& part_of) const {
    const std::size_t space = gets_space(text) ? 1 : 0;
    std::size_t end = 0;
    for (std::size_t i = part_of.size(); i < ids.size(); ++i) {
      end += vocabulary_.tokens[static_cast<std::size_t>(ids[i])].size();
      part_of.push_back(borders.part_at(end > space ? end - space - 1 : 0));
    }
  }

  void encode_pieces(std::string_view text, std::vector<std::int32_t>& ids) {
    const char *at = text.data(), *const end = at + text.size();
    std::size_t count = ids.size();  // ids that are in use; after them is room
    while (at < end) {
      // Some pieces ahead of the one that is looked up, so that the cache's lines have time to come from memory.
      std::array<Piece, kAhead> pieces;
      std::size_t found = 0;
      for (; found < kAhead && at < end; ++found) {
        const char* const stop = scanner_.piece_end(at, end);
        Piece& piece = pieces[found];
        piece.text = {at, static_cast<std::size_t>(stop - at)};
        if (piece.text.size() <= ShortPieces::kBytes) [[likely]] {
          piece.key = ShortPieces::key_of(at, piece.text.size(), static_cast<std::size_t>(end - at));
          short_pieces_.prefetch(piece.key);
        }
        at = stop;
      }
      for (std::size_t i = 0; i < found; ++i) {
        const std::string_view text_of = pieces[i].text;
        const auto readable = static_cast<std::size_t>(end - text_of.data());
        make_room(ids, count, LongPieces::kIds, readable);
        if (text_of.size() <= ShortPieces::kBytes) [[likely]] {
          count += look_up(short_pieces_, pieces[i].key, text_of, readable, ids, count);
        } else if (text_of.size() <= LongPieces::kBytes) {
          count += look_up(long_pieces_, LongPieces::key_of(text_of.data(), text_of.size(), readable), text_of,
                           readable, ids, count);
        } else {
          count += compute(text_of, readable, ids, count);
        }
      }
    }
    ids.resize(count);
  }

  static constexpr std::size_t kAhead = 16;
  struct Piece {
    std::string_view text;
    ShortPieces::Key key;
  };

  /// So that `more` ids fit after the first `count`; `left` bytes of text are still to come.
  static void make_room(std::vector<std::int32_t>& ids, std::size_t count, std::size_t more, std::size_t left) {
    if (ids.size() - count < more) [[unlikely]]
      ids.resize(std::max(count + count / 2, count + left / 3) + more);
  }

  /// Puts the ids of a piece after the first `count`; returns how many they are.
  template <class Cache>
  std::size_t look_up(Cache& cache, const typename Cache::Key& key, std::string_view piece, std::size_t readable,
                      std::vector<std::int32_t>& ids, std::size_t count) {
    if (const auto* entry = cache.find(key)) [[likely]] {
      std::copy(entry->ids.begin(), entry->ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      return entry->count;
    }
    const std::size_t made = compute(piece, readable, ids, count);
    if (made <= Cache::kIds) cache.insert(key, made_);
    return made;
  }

  std::size_t compute(std::string_view piece, std::size_t readable, std::vector<std::int32_t>& ids, std::size_t count) {
    made_.clear();
    if (const std::int32_t token = whole_token(piece); token >= 0) {
      made_.push_back(token);
    } else {
      rules_.encode(piece, made_);
    }
    make_room(ids, count, made_.size(), readable);
    std::copy(made_.begin(), made_.end(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    return made_.size();
  }

  /// The token that a piece is as it stands, where merges are ignored for such; -1 if there is none.
  std::int32_t whole_token(std::string_view piece) const {
    if (!vocabulary_.ignore_merges) return -1;
    const TokenIndex::Entry* const found = vocabulary_.whole_pieces.find(piece);
    return found == nullptr || found->id == vocabulary_.end_of_text ? -1 : found->id;
  }

  const BpeVocabulary& vocabulary_;
  const MergeRules& rules_;
  const AddedTokenSets& added_;
  std::string with_space_;
  TextNormalizer normalizer_;
  PieceScanner scanner_;
  ShortPieces short_pieces_;
  LongPieces long_pieces_;
  std::vector<std::int32_t> made_;  // ids of the piece that was computed last
};

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(const std::string& vocab_file, const std::string& merge_file, std::int64_t rows,
                             const FolderSettings& folder)
    : vocabulary_(read(vocab_file, merge_file, rows, folder)),
      rules_(vocabulary_),
      added_(vocabulary_.added, vocabulary_.end_of_text, vocabulary_.normalizer),
      hash_(hash_of(vocabulary_)) {}

std::unique_ptr<Encoder> Gpt2Tokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<Gpt2Encoder>(vocabulary_, rules_, added_, special);
}

std::string Gpt2Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the gpt2 tokenizer's 0 .. {}", id,
           vocab_size() - 1);
    if (id != eod_id()) text += vocabulary_.tokens[static_cast<std::size_t>(id)];
  }
  return text;
}

std::vector<TokenizerFile> Gpt2Tokenizer::files() const {
  if (!vocabulary_.tokenizer_text.empty()) return {{kTokenizerFile, vocabulary_.tokenizer_text}};
  return {{kVocabFile, vocabulary_.vocab_text}, {kMergeFile, vocabulary_.merge_text}};
}

std::string Gpt2Tokenizer::tokenizer_json() const {
  return vocabulary_.tokenizer_text.empty() ? write_tokenizer_json(vocabulary_) : vocabulary_.tokenizer_text;
}

}  // namespace megatron
