// One shard file, PREFIX-00000.h5: tokens of whole documents, written once and then only read. Shards of format 1 lack
// the hashes; they are still read. A writer owns its temporary file until it is finished. Errors of reading are
// ErrorKind::data.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "data/shards/shard_paths.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

inline constexpr std::uint64_t kShardFormatVersion = 2, kUnhashedShardFormatVersion = 1;

/// Whose tokens these are. Equal for all shards of a set.
struct Vocabulary {
  std::string tokenizer;
  std::uint64_t hash = 0;
  std::uint64_t size = 0;
  std::uint64_t eod_id = 0;
  SpecialIds special = {};
  std::vector<std::uint8_t> continues = {};  ///< [size] or empty: Tokenizer::continues()
  bool operator==(const Vocabulary&) const = default;
};
Vocabulary vocabulary_of(const Tokenizer& tokenizer);
/// For messages: name, size and hash.
std::string describe(const Vocabulary& vocabulary);

/// PREFIX.vocab.json: where the files of a set's tokenizer are (kVocabFile, kMergeFile), if it has any.
std::string vocabulary_path(const std::string& prefix, const std::string& file);

/// Whether shards know where sentences begin.
enum class Sentences { unknown, kept };

/// Streams documents into a temporary file. Memory does not depend on their number.
class TokenShardWriter {
 public:
  TokenShardWriter(std::string temporary_path, const Vocabulary& vocabulary, Sentences sentences = Sentences::unknown);
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;
  ~TokenShardWriter();  ///< removes the file unless finish() has returned

  /// At least one token; an id outside the vocabulary is an error.
  void add_document(std::span<const std::int32_t> tokens);
  /// With the lengths of its sentences, which have tokens and are all of it. Only if sentences are kept, and then only
  /// this.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sentences);
  /// Closes the file and flushes it to disk. Returns the hash of its contents.
  std::uint64_t finish();

  std::uint64_t tokens() const { return token_count_; }
  std::uint64_t documents() const { return document_count_; }

 private:
  void add_tokens(std::span<const std::int32_t> tokens);
  void flush_tokens();
  void flush_documents();
  void flush_sentences();

  std::string path_;
  Vocabulary vocabulary_;
  Sentences kept_;
  Hdf5File file_;
  Hdf5Dataset tokens_, documents_, sentences_, continues_;
  std::vector<std::uint16_t> narrow_;  // tokens that are not written yet; one of the two is used
  std::vector<std::uint32_t> wide_;
  std::vector<std::uint64_t> ends_, sentence_ends_;
  std::uint64_t token_count_ = 0, document_count_ = 0;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_;
  bool finished_ = false;
};

/// Writes its place in the set into a finished temporary shard, durably. What it lacks now is its name, shard_path.
void seal_shard(const std::string& temporary_path, std::uint64_t index, std::uint64_t count, std::uint64_t set_hash);

/// A published shard, open for reading. Not thread-safe. The file has
///
///   /tokens      u16, or u32 if the vocabulary has more than 65536 entries; chunks of 64 KiB with fletcher32
///   /documents   u64 [documents + 1]: where each document begins in /tokens; the last entry is the number of tokens
///   /tokens.xxh3, /documents.xxh3   u64: the XXH3 hash of each of their chunks, which is verified whenever one is read
///   /sentences   u64 [sentences + 1], optional: where each sentence begins; every document begins with one
///   /continues   u8 [vocab_size], optional: 1 for a token that continues a word
///   /provenance  u8, optional: JSON that says where the text comes from (shard_provenance.h)
///   attributes   format_version, tokenizer, tokenizer_hash, vocab_size, eod_id,
///                shard_index, shard_count, set_hash: which part of which set this is, so that a set that lacks a shard
///                or mixes two runs of megatron_preprocess is noticed;
///                those of cls sep mask pad bos eos unk first_sentinel sentinels that the vocabulary has;
///                sentinels_descend (1): the first sentinel has the highest id
class TokenShard {
 public:
  /// Checks everything but the tokens themselves, which are checked as they are read.
  explicit TokenShard(const std::string& path);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::uint64_t index() const { return index_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t set_hash() const { return set_hash_; }
  std::uint64_t tokens() const { return tokens_.elements(); }
  std::uint64_t documents() const { return documents_.elements() - 1; }
  bool has_sentences() const { return sentences_.has_value(); }

  /// documents() + 1 offsets, checked: 0, rising, tokens().
  std::vector<std::uint64_t> read_documents() const;
  /// Where sentences begin, and tokens(), checked: 0, rising, and every document begins with one. Only with
  /// has_sentences().
  std::vector<std::uint64_t> read_sentences() const;
  /// Tokens [first, first + count) as ids. A chunk that is damaged or has been changed or an id outside the vocabulary
  /// is an error.
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids);

 private:
  explicit TokenShard(const Hdf5Reader& file);
  void open_optional(const Hdf5Reader& file, bool hashed);
  std::string path_;
  Vocabulary vocabulary_;
  Hdf5Array tokens_, documents_;
  std::optional<Hdf5Array> sentences_;
  std::uint64_t index_ = 0, count_ = 0, set_hash_ = 0;
  std::vector<std::uint16_t> narrow_;  // staging for u16
};

}  // namespace megatron
