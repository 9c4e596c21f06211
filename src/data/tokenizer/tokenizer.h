// Tokenizer: text to token ids and back. Immutable and safe to use from several threads. Encoding is done by Encoders,
// one for each thread, which may remember what they have seen (only to be faster: the ids are a pure function of the
// text).
//
// Ids are 0 .. vocab_size() - 1. The hash identifies the mapping itself, so that shards made with another vocabulary of
// the same size are told apart. This layer must not know what shards or samples are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Bytes of one piece: merging takes some 24 times as much memory, and SentencePiece's BPE up to 100 times.
inline constexpr std::size_t kLongestPiece = std::size_t{64} << 20;

/// Whether the special tokens of a vocabulary, written out in a text, are text or those tokens. As text they cannot end
/// a document; as tokens they are what Hugging Face's tokenizers makes of them by default.
enum class SpecialTokens { text, tokens };

/// A part of a text that is encoded as one.
struct TextPart {
  std::string_view text;
  SpecialTokens special = SpecialTokens::text;  ///< written out in this part; nothing where the tokenizer has none
};

class PartBorders;
struct TokenOutput;

/// Not thread-safe; must not outlive its tokenizer.
class Encoder {
 public:
  virtual ~Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Appends the ids of `text`, which may be any bytes, to `ids`. ErrorKind::data, with some of them appended, if a
  /// piece (a word, roughly) that the tokenizer has to look at as a whole is longer than kLongestPiece.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);
  /// Makes `ids` those of the parts' joined text, and `part_of` the numbers of their parts. A token belongs to the part
  /// that its last byte is of, so one that straddles a border belongs to the later part; a token that stands for no
  /// byte belongs to the part of the byte after it. Parts are whole characters.
  void encode_parts(std::span<const TextPart> parts, std::vector<std::int32_t>& ids,
                    std::vector<std::uint32_t>& part_of);

 protected:
  explicit Encoder(SpecialTokens special) : special_(special) {}
  virtual void run(std::string_view text, const PartBorders& borders, TokenOutput& output) = 0;

 private:
  SpecialTokens special_;
};

inline constexpr const char *kVocabFile = "vocab.json", *kMergeFile = "merges.txt", *kTokenizerFile = "tokenizer.json",
                            *kWordPieceFile = "vocab.txt", *kSentencePieceFile = "tokenizer.model";
inline constexpr const char* kTokenizerFiles[] = {kVocabFile, kMergeFile, kTokenizerFile, kWordPieceFile,
                                                  kSentencePieceFile};
/// Hugging Face's, next to kTokenizerFile or kSentencePieceFile.
inline constexpr const char *kTokenizerConfigFile = "tokenizer_config.json", *kAddedTokensFile = "added_tokens.json";

/// A file that a tokenizer was made from, to be kept next to what was made with it.
struct TokenizerFile {
  std::string name;           ///< one of kTokenizerFiles
  std::string_view contents;  ///< as long as the tokenizer lives
};

/// Ids of tokens with a meaning of their own; -1: there is none. Sentinel i is first_sentinel + i * sentinel_step.
struct SpecialIds {
  std::int32_t cls = -1, sep = -1, mask = -1, pad = -1, bos = -1, eos = -1, unk = -1, first_sentinel = -1;
  std::int32_t sentinels = 0;
  std::int32_t sentinel_step = 1;  ///< -1 where the first has the highest id, as T5's have it
  bool operator==(const SpecialIds&) const = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string name() const = 0;         ///< as make_tokenizer takes it
  virtual std::int64_t vocab_size() const = 0;  ///< unpadded
  virtual std::int32_t eod_id() const = 0;      ///< ends a document; no text encodes to it with SpecialTokens::text
  virtual std::uint64_t hash() const = 0;       ///< identifies the mapping
  /// ErrorKind::configuration if special tokens are asked for and there are none.
  virtual std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const = 0;
  std::unique_ptr<Encoder> make_encoder() const { return make_encoder(SpecialTokens::text); }
  /// The bytes of `ids`. The end-of-document id gives nothing, other special tokens their names; an id outside the
  /// vocabulary is ErrorKind::data.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Text that an id adds to that of the ids before it: these texts together are decode() of all ids, but for what
  /// precedes the first.
  virtual std::string decode_next(std::int32_t id) const { return decode(std::span(&id, 1)); }
  virtual std::string eod_text() const = 0;  ///< the name of the end-of-document token
  virtual SpecialIds special_ids() const { return {}; }
  /// For each id whether its token continues a word ("##ing"); empty where words are not kept apart.
  virtual std::vector<std::uint8_t> continues() const { return {}; }
  virtual std::vector<TokenizerFile> files() const { return {}; }
  /// Hugging Face's form (tokenizer_export.h) of the same mapping; the file that it was made from, if that was one.
  /// Empty if this program makes none: of SentencePiece's models.
  virtual std::string tokenizer_json() const = 0;
  /// Where there is no tokenizer_json(): the JSON object that kTokenizerConfigFile has to be next to files(), so that
  /// transformers gives the same ids.
  virtual std::string tokenizer_config() const { return "{}"; }
};

}  // namespace megatron
