// Tokenizer: text to token ids and back.
//
// A Tokenizer is immutable and safe to use from several threads. Encoding is done by Encoders, which may remember what
// they have seen (only to be faster: the ids are a pure function of the text): one for each thread.
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

/// Bytes of one piece: merging takes some 24 times as much memory.
inline constexpr std::size_t kLongestPiece = std::size_t{64} << 20;

/// Whether the special tokens of a vocabulary, written out in a text, are text or those tokens. As text they cannot end
/// a document; as tokens they are what Hugging Face's tokenizers makes of them by default.
enum class SpecialTokens { text, tokens };

/// Not thread-safe; must not outlive its tokenizer.
class Encoder {
 public:
  virtual ~Encoder() = default;
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Appends the ids of `text`, which may be any bytes, to `ids`. ErrorKind::data, with some of them appended, if a
  /// piece (a word, roughly) that the tokenizer has to look at as a whole is longer than kLongestPiece.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) = 0;
};

inline constexpr const char *kVocabFile = "vocab.json", *kMergeFile = "merges.txt", *kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerFiles[] = {kVocabFile, kMergeFile, kTokenizerFile};
inline constexpr const char* kTokenizerConfigFile =
    "tokenizer_config.json";  ///< Hugging Face's, next to kTokenizerFile

/// A file that a tokenizer was made from, to be kept next to what was made with it.
struct TokenizerFile {
  std::string name;           ///< one of kTokenizerFiles
  std::string_view contents;  ///< as long as the tokenizer lives
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
  virtual std::uint64_t hash() const = 0;       ///< of the mapping
  /// ErrorKind::configuration if special tokens are asked for and there are none.
  virtual std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const = 0;
  std::unique_ptr<Encoder> make_encoder() const { return make_encoder(SpecialTokens::text); }
  /// The bytes of `ids`. The end-of-document id gives nothing, other special tokens their names; an id outside the
  /// vocabulary is ErrorKind::data.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::string eod_text() const = 0;  ///< the name of the end-of-document token
  virtual std::vector<TokenizerFile> files() const { return {}; }
  /// Hugging Face's form (tokenizer_export.h) of the same mapping; the file that it was made from, if that was one.
  virtual std::string tokenizer_json() const = 0;
};

/// Whether the tokenizer of this name is made from files.
bool tokenizer_has_files(std::string_view name);

struct TokenizerChoice {
  std::string name = "byte";  ///< "byte" or "gpt2"
  /// gpt2 only: kVocabFile and kMergeFile, or kTokenizerFile alone as vocab_file. Without merge_file, a vocab_file
  /// whose name ends with kVocabFile is paired with the file next to it whose name ends with kMergeFile instead.
  std::string vocab_file, merge_file;
};

/// ErrorKind::configuration if there is no such tokenizer (listing what exists) or its files are not named;
/// ErrorKind::data for what is wrong in them.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice);

/// ErrorKind::filesystem where it cannot be told: that is not taken for absent.
bool tokenizer_file_exists(const std::string& path);

/// What lies under the names of a tokenizer's files.
struct KeptTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  ///< the one that was looked for; nullptr: it is not there
  std::string others;  ///< the files that are there instead, and why they are not it; empty if there are none
};

/// Looks for a tokenizer whose files were kept, under their own names after `before` ("data/stories." or
/// "run/tokenizer/"): kTokenizerFile, kVocabFile with kMergeFile, or both. The hash tells which it is, since some may
/// have been left there by another one; damaged files are not it.
KeptTokenizer find_kept_tokenizer(const std::string& name, std::uint64_t hash, const std::string& before);

}  // namespace megatron
