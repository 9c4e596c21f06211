// ShardSetFiles: the files of one set of token shards, from their temporary names to their final ones. It says what
// files a set is made of, under which names, and that they appear all or not at all; what is written into shards is its
// users' business: Preprocessor's, whose ranks write the parts of a set together, and ShardSetWriter's.
//
// Errors are ErrorKind::filesystem if nothing else is said.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/system/durable_file.h"
#include "data/shards/token_shard.h"

namespace megatron {

struct ShardSummary {
  std::uint64_t documents = 0, tokens = 0;
  std::uint64_t hash = 0;  ///< TokenShardWriter::finish()
};

/// ErrorKind::configuration if it is no prefix of file names; `option` says what gave it.
void check_prefix(const std::string& prefix, const char* option);
/// Checks it, and makes the folder that files of this prefix go to.
void prepare_prefix(const std::string& prefix, const char* option);

/// Whether a whole set of shards lies under the prefix. ErrorKind::configuration if it has another vocabulary.
bool find_replaceable(const std::string& prefix, const Vocabulary& vocabulary);

/// Files of all parts of a set, or of those that one rank writes. What it has written is removed, and what was there
/// before is put back, unless commit() is reached.
class ShardSetFiles {
 public:
  explicit ShardSetFiles(std::string prefix) : prefix_(std::move(prefix)) {}
  ShardSetFiles(const ShardSetFiles&) = delete;
  ShardSetFiles& operator=(const ShardSetFiles&) = delete;
  ~ShardSetFiles();

  const std::string& prefix() const { return prefix_; }
  /// Where part 0, 1, ... of the set is to be written by a TokenShardWriter.
  std::string begin_part(std::uint64_t part);
  /// Writes a file of the tokenizer (of kTokenizerFiles), to be kept next to the shards.
  void write_vocabulary(const std::string& file, std::string_view contents);
  /// Before publish() and after write_vocabulary(): ErrorKind::configuration if a whole set of shards lies under the
  /// prefix that differs from this one, or something else than shards. An equal set, or one that is not whole, may be
  /// replaced.
  void require_replaceable(std::span<const ShardSummary> parts, const Vocabulary& vocabulary) const;
  /// Gives the parts that were begun here, which are finished by now, and the vocabulary their names. `parts`: what all
  /// of the set hold, on whichever rank they were written; those without documents make no shard, and there is another.
  void publish(std::span<const ShardSummary> parts);
  /// All writers of parts of the set have published.
  void commit() noexcept { publication_.commit(); }
  /// After commit(), for one of them: removes the shards of a longer set that was there, and what killed commands have
  /// left. What cannot be removed stays, and so does what is not a shard by name and contents.
  void remove_leftovers() const noexcept;

 private:
  std::string temporary_path(std::uint64_t part) const;
  void require_no_others(std::uint64_t shards) const;

  std::string prefix_;
  std::vector<std::uint64_t> begun_;  // parts without a name as yet
  std::vector<std::string> vocabulary_files_;
  Publication publication_;
  std::uint64_t shards_ = 0;  // in the whole set
};

}  // namespace megatron
