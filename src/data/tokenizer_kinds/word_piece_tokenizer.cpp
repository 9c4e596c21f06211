#include "data/tokenizer_kinds/word_piece_tokenizer.h"

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer_kinds/word_splitter.h"

namespace megatron {

namespace {

enum class Ascii : std::uint8_t { word, space, punctuation };

/// Bytes that separate words whatever is around them. All others, also parts of characters, belong to a run: what a run
/// gives depends on its bytes alone.
std::array<Ascii, 256> byte_table() {
  std::array<Ascii, 256> table{};
  for (const unsigned char c : {' ', '\t', '\n', '\r'}) table[c] = Ascii::space;
  for (std::size_t c = 0; c < 0x80; ++c) {
    const std::uint8_t bits = BertCharacters::instance().of(static_cast<std::uint32_t>(c));
    if ((bits & kBertPunctuation) != 0) table[c] = Ascii::punctuation;
  }
  return table;
}

std::uint64_t hash_of(const WordPieceVocabulary& vocabulary) {
  std::string all = "tokenizer wordpiece: BERT's words;";
  for (const std::string& token : vocabulary.tokens) all += fmt::format("{}:{},", token.size(), token);
  all += fmt::format("clean {} ideographs {} accents {} lower {} longest {};", vocabulary.clean, vocabulary.ideographs,
                     vocabulary.strip_accents, vocabulary.lower_case, vocabulary.longest_word);
  for (const AddedToken& token : vocabulary.added) {
    if (token.special) continue;
    all += fmt::format("found {}:{}={} word {} spaces {} {},", token.content.size(), token.content, token.id,
                       token.single_word, token.lstrip, token.rstrip);
    if (token.normalized) all += "normalized,";
  }
  return hash_name(all + fmt::format("end of document {}", vocabulary.special.eos));
}

/// Steps for a whole text that do what WordSplitter does word by word.
std::vector<NormalizerStep> normalizer_of(const WordPieceVocabulary& vocabulary) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  if (vocabulary.clean) steps.push_back({.kind = Kind::clean});
  if (vocabulary.ideographs) steps.push_back({.kind = Kind::space_ideographs});
  if (vocabulary.strip_accents) steps.insert(steps.end(), {{.kind = Kind::nfd}, {.kind = Kind::strip_marks}});
  if (vocabulary.lower_case) steps.push_back({.kind = Kind::lower_case});
  return steps;
}

/// Parts of a tokenizer that its Encoders need.
struct WordPieceParts {
  const WordPieceVocabulary& vocabulary;
  const std::vector<NormalizerStep>& normalizer;
  const AddedTokenSets& added;
};

class WordPieceEncoder final : public Encoder {
 public:
  WordPieceEncoder(const WordPieceParts& parts, SpecialTokens special)
      : Encoder(special),
        vocabulary_(parts.vocabulary),
        added_(parts.added),
        normalizer_(parts.normalizer),
        splitter_(vocabulary_),
        table_(byte_table()),
        short_words_(kShortPieceBits),
        long_words_(kLongPieceBits) {
    for (std::size_t c = 0; c < punctuation_.size(); ++c) {
      if (table_[c] != Ascii::punctuation) continue;
      made_.clear();
      encode_word(std::string(1, static_cast<char>(c)));
      punctuation_[c] = made_.front();
    }
  }

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    const auto add = [&](std::int32_t id, std::uint32_t part) { output.add(id, part); };
    const auto encode = [&](std::string_view part, const PartBorders& inside) { encode_part(part, inside, output); };
    if (!added_.any_normalized()) return added_.plain().split(text, borders, encode, add);
    const auto encode_normalized = [&](std::string_view part, const PartBorders& inside, bool) {
      encode(part, inside);
    };
    added_.split(text, borders, normalizer_, encode_normalized, add);
  }

  void encode_part(std::string_view text, const PartBorders& borders, TokenOutput& output) {
    const char *at = text.data(), *const end = at + text.size();
    while (at < end) {
      const Ascii kind = table_[static_cast<unsigned char>(*at)];
      if (kind == Ascii::space) {
        ++at;
      } else if (kind == Ascii::punctuation) {
        const auto place = static_cast<std::size_t>(at - text.data());
        output.add(punctuation_[static_cast<unsigned char>(*at++)], borders.part_at(place));
      } else {
        const char* const stop = run_end(at, end);
        const std::string_view run(at, static_cast<std::size_t>(stop - at));
        encode_run(run, static_cast<std::size_t>(end - at), output.ids);
        if (output.part_of != nullptr) find_parts(run, static_cast<std::size_t>(at - text.data()), borders, output);
        at = stop;
      }
    }
  }

  /// The parts of the tokens of a run, which begins at `begin` and whose tokens have been added.
  void find_parts(std::string_view run, std::size_t begin, const PartBorders& borders, TokenOutput& output) {
    const std::uint32_t part = borders.part_at(begin);
    if (part == borders.part_at(begin + run.size() - 1)) return output.part_of->resize(output.ids.size(), part);
    splitter_.split(run, [&](std::string_view word) {
      made_.clear();
      encode_word(word);
      for (const std::size_t end : made_ends_) {
        output.part_of->push_back(borders.part_at(begin + splitter_.end_in_text(end) - 1));
      }
    });
  }

  const char* run_end(const char* at, const char* end) const {
    while (end - at >= 8) {
      const std::ptrdiff_t letters = ascii_letters(at);
      at += letters;
      if (letters == 8) continue;
      if (table_[static_cast<unsigned char>(*at)] != Ascii::word) return at;
      ++at;
    }
    while (at < end && table_[static_cast<unsigned char>(*at)] == Ascii::word) ++at;
    return at;
  }

  void encode_run(std::string_view run, std::size_t readable, std::vector<std::int32_t>& ids) {
    if (run.size() <= ShortPieces::kBytes) [[likely]] {
      look_up(short_words_, run, readable, ids);
    } else if (run.size() <= LongPieces::kBytes) {
      look_up(long_words_, run, readable, ids);
    } else {
      compute(run, ids);
    }
  }

  template <class Cache>
  void look_up(Cache& cache, std::string_view run, std::size_t readable, std::vector<std::int32_t>& ids) {
    const auto key = Cache::key_of(run.data(), run.size(), readable);
    if (const auto* entry = cache.find(key)) [[likely]] {
      if (entry->count == 1) return ids.push_back(entry->ids[0]);
      ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->count);
      return;
    }
    const std::size_t before = ids.size();
    compute(run, ids);
    const auto made = std::span(ids).subspan(before);
    if (made.size() <= Cache::kIds) cache.insert(key, made);
  }

  void compute(std::string_view run, std::vector<std::int32_t>& ids) {
    splitter_.split(run, [&](std::string_view word) {
      made_.clear();
      encode_word(word);
      ids.insert(ids.end(), made_.begin(), made_.end());
    });
  }

  /// The pieces of a word into made_, and where they end in it into made_ends_. An empty one is too long to have any.
  void encode_word(std::string_view word) {
    made_ends_.clear();
    const TokenIndex* index = &vocabulary_.first;
    for (std::size_t at = 0; at < word.size(); index = &vocabulary_.continuing) {
      std::size_t length = std::min(word.size() - at, vocabulary_.longest);
      const TokenIndex::Entry* found = nullptr;
      for (; length > 0 && found == nullptr; --length) {
        if (at + length < word.size() && (static_cast<unsigned char>(word[at + length]) & 0xC0) == 0x80) continue;
        found = index->find(word.substr(at, length));
      }
      if (found == nullptr) {
        made_.clear();
        break;
      }
      made_.push_back(found->id);
      at += found->bytes.size();
      made_ends_.push_back(at);
    }
    if (made_.empty()) {
      made_.push_back(vocabulary_.special.unk);
      made_ends_.assign(1, word.size());
    }
  }

  const WordPieceVocabulary& vocabulary_;
  const AddedTokenSets& added_;
  TextNormalizer normalizer_;
  WordSplitter splitter_;
  std::array<Ascii, 256> table_;
  std::array<std::int32_t, 128> punctuation_{};
  ShortPieces short_words_;
  LongPieces long_words_;
  std::vector<std::int32_t> made_;
  std::vector<std::size_t> made_ends_;
};

/// As the decoder of Hugging Face's tokenizers closes up spaces, as far as single tokens allow.
bool follows_without_space(std::string_view token) {
  constexpr std::string_view kBeginnings[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](std::string_view beginning) { return token.starts_with(beginning); });
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(WordPieceVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)),
      normalizer_(normalizer_of(vocabulary_)),
      added_(vocabulary_.added, vocabulary_.special.eos, normalizer_),
      hash_(hash_of(vocabulary_)) {}

std::unique_ptr<Encoder> WordPieceTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<WordPieceEncoder>(WordPieceParts{vocabulary_, normalizer_, added_}, special);
}

std::string WordPieceTokenizer::decode_next(std::int32_t id) const {
  verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the {} tokenizer's 0 .. {}", id, name(),
         vocab_size() - 1);
  if (id == eod_id()) return "";
  const std::string_view written = token(id);
  if (written.starts_with(kContinuation)) return std::string(written.substr(kContinuation.size()));
  return (vocabulary_.close_up && follows_without_space(written) ? "" : " ") + std::string(written);
}

std::string WordPieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool first = true;
  for (const std::int32_t id : ids) {
    const std::string next = decode_next(id);
    if (id == eod_id()) continue;
    text += first ? token(id) : next;
    first = false;
  }
  return text;
}

std::vector<std::uint8_t> WordPieceTokenizer::continues() const {
  std::vector<std::uint8_t> result;
  for (const std::string& written : vocabulary_.tokens) {
    result.push_back(written.starts_with(kContinuation) && written.size() > kContinuation.size() ? 1 : 0);
  }
  return result;
}

std::string WordPieceTokenizer::tokenizer_json() const {
  return vocabulary_.file == kTokenizerFile ? vocabulary_.text : write_word_piece_json(vocabulary_);
}

}  // namespace megatron
