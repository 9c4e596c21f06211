// TokenDataset: all shards of a prefix as one long line of tokens, with the documents' boundaries.
//
// TokenSource is the little that samples need to know of it. Positions and counts are 64-bit tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/token_shard.h"

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

/// Needs eight bytes of memory a document and a bounded number of open files. Errors are ErrorKind::data.
class TokenDataset final : public TokenSource {
 public:
  /// Opens every shard once and checks that the set is whole and of one make: "PREFIX" as given to --output.
  explicit TokenDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::uint64_t set_hash() const { return set_hash_; }  ///< identifies the contents
  std::uint64_t shards() const { return shard_starts_.size() - 1; }
  std::uint64_t documents() const { return document_starts_.size() - 1; }
  std::uint64_t tokens() const override { return shard_starts_.back(); }
  /// First token of a document; tokens() for document == documents().
  std::uint64_t document_start(std::uint64_t document) const { return document_starts_.at(document); }
  std::span<const std::uint64_t> document_starts() const { return document_starts_; }  ///< [documents() + 1]
  /// Of the lengths of the first `documents`, however they are spread over shards.
  std::uint64_t hash_of_lengths(std::uint64_t documents) const {
    const auto starts = document_starts().first(documents + 1);
    return XXH3_64bits(starts.data(), starts.size_bytes());
  }

  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override;

 private:
  TokenShard& shard(std::size_t index);

  std::string prefix_;
  Vocabulary vocabulary_;
  std::uint64_t set_hash_ = 0;
  std::vector<std::uint64_t> shard_starts_, document_starts_;
  std::mutex mutex_;  // over all below
  std::vector<std::unique_ptr<TokenShard>> open_;
  std::vector<std::uint64_t> last_use_;
  std::uint64_t uses_ = 0, open_count_ = 0;
};

}  // namespace megatron
