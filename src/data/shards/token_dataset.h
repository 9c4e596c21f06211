// TokenDataset: the shards that a path stands for (shard_paths.h) as one long line of tokens, with the documents'
// boundaries. TokenChain: several such lines, one after the other.
//
// TokenSource is the little that samples need to know of them. Positions and counts are 64-bit tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/shards/token_shard.h"

namespace megatron {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  virtual std::uint64_t tokens() const = 0;
  /// Ids of the tokens [first, first + count), which must exist. Safe to call from several threads.
  virtual void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) = 0;
};

/// How a document of a shard ends.
struct DocumentEnd {
  std::string shard;        ///< its path
  const char* which = "";   ///< "first" or "last" of the shard
  std::int32_t token = -1;  ///< the document's last one
};

/// Needs eight bytes of memory a document and a bounded number of open files. Errors are ErrorKind::data.
class TokenDataset final : public TokenSource {
 public:
  /// Opens every shard once and checks that each set is whole and of one make, and all of one tokenizer.
  explicit TokenDataset(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& prefix() const { return sets_.front().prefix; }  ///< the first set's
  std::vector<std::string> prefixes() const;                          ///< all sets'
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::uint64_t set_hash() const { return set_hash_; }  ///< identifies the contents
  std::uint64_t shards() const { return shard_starts_.size() - 1; }
  std::uint64_t documents() const { return document_starts_.size() - 1; }
  std::uint64_t tokens() const override { return shard_starts_.back(); }
  /// First token of a document; tokens() for document == documents().
  std::uint64_t document_start(std::uint64_t document) const { return document_starts_.at(document); }
  std::span<const std::uint64_t> document_starts() const { return document_starts_; }  ///< [documents() + 1]
  /// Hash of the lengths of the first `documents`, however they are spread over shards.
  std::uint64_t hash_of_lengths(std::uint64_t documents) const {
    const auto starts = document_starts().first(documents + 1);
    return XXH3_64bits(starts.data(), starts.size_bytes());
  }

  /// Whether every shard knows where sentences begin.
  bool has_sentences() const { return has_sentences_; }
  /// The first token of each sentence, and tokens(); every document begins with one. Eight bytes of memory a sentence;
  /// opens every shard. ErrorKind::data if a shard does not know them.
  std::vector<std::uint64_t> read_sentences();

  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override;
  /// Ends of the first and the last document of every shard. megatron_preprocess ends all documents of a set alike,
  /// with or without the end-of-document token: these show where sets of both kinds were put together. Opens every
  /// shard.
  std::vector<DocumentEnd> document_ends();

 private:
  struct Set : ShardSet {
    std::uint64_t hash = 0;
    std::size_t first = 0;  // its first shard, among those of all sets
    bool whole = false;     // every shard of the set is taken
  };
  void add(const ShardSet& set);
  void add_shard(const TokenShard& shard, const std::string& path);
  const Set& set_of(std::size_t shard) const;
  std::string path_of(std::size_t shard) const;
  TokenShard& shard(std::size_t index);

  std::string path_;
  std::vector<Set> sets_;
  Vocabulary vocabulary_;
  std::uint64_t set_hash_ = 0;
  bool has_sentences_ = true;
  std::vector<std::uint64_t> shard_starts_, document_starts_;
  std::mutex mutex_;  // over all below
  std::vector<std::unique_ptr<TokenShard>> open_;
  std::vector<std::uint64_t> last_use_;
  std::uint64_t uses_ = 0, open_count_ = 0;
};

/// Does not own its parts, which must outlive it; there is at least one.
class TokenChain final : public TokenSource {
 public:
  explicit TokenChain(std::vector<TokenSource*> parts);

  std::uint64_t tokens() const override { return starts_.back(); }
  std::uint64_t start_of(std::size_t part) const { return starts_.at(part); }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override;

 private:
  std::vector<TokenSource*> parts_;
  std::vector<std::uint64_t> starts_;
};

}  // namespace megatron
