// ShardSetWriter: documents, one after the other, to the token shards of one prefix. For who has tokens already;
// Preprocessor, which makes them from text on many ranks, shares the rules for what a set is.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/token_dataset.h"
#include "data/token_shard.h"

namespace megatron {

struct ShardSummary {
  std::uint64_t documents = 0, tokens = 0;
  std::uint64_t hash = 0;  ///< TokenShardWriter::finish()
};
/// What all shards of a set hold as set_hash.
std::uint64_t hash_of_set(const std::vector<ShardSummary>& shards);

/// Removes what older runs have left under this prefix: shards of a longer set, temporary files of a killed run, and,
/// vocabulary files, all but those of these names.
void remove_leftovers(const std::string& prefix, std::uint64_t shards,
                      const std::vector<std::string>& vocabulary_files);

/// Makes the folder that files of this prefix go to. ErrorKind::configuration if it is no prefix of file names.
void prepare_prefix(const std::string& prefix, const char* option);

struct VocabularyFile {
  std::string name, contents;  ///< one of kTokenizerFiles
};

/// Nothing has its final name until finish(), and what has a temporary one is removed if that is not reached.
class ShardSetWriter {
 public:
  /// A new shard is begun after `tokens_per_shard`, with the next document.
  ShardSetWriter(const std::string& prefix, const Vocabulary& vocabulary, std::uint64_t tokens_per_shard,
                 std::vector<VocabularyFile> files = {});
  ShardSetWriter(const ShardSetWriter&) = delete;
  ShardSetWriter& operator=(const ShardSetWriter&) = delete;
  ~ShardSetWriter();

  /// As TokenShardWriter::add_document.
  void add_document(std::span<const std::int32_t> tokens);
  /// Gives all files their names. ErrorKind::data if there were no documents.
  void finish();

  std::uint64_t documents() const { return documents_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t shards() const { return finished_shards_.size(); }

 private:
  std::string temporary_path(std::uint64_t shard) const;
  void end_shard();

  std::string prefix_;
  Vocabulary vocabulary_;
  std::uint64_t tokens_per_shard_;
  std::vector<VocabularyFile> files_;
  std::unique_ptr<TokenShardWriter> shard_;
  std::vector<ShardSummary> finished_shards_;
  std::vector<std::string> written_;  // temporary and final names, to be removed after an error
  std::uint64_t documents_ = 0, tokens_ = 0;
};

using ReadTokens = std::function<void(std::uint64_t first, std::uint64_t count, std::int32_t* ids)>;
using VisitDocument = std::function<void(std::span<const std::int32_t> tokens)>;

/// Calls `visit` with the tokens of each document, in order; many are read at a time. Document d has the tokens
/// [starts[d], starts[d + 1]). Memory: a few MiB, or the longest document.
void visit_documents(std::span<const std::uint64_t> starts, const ReadTokens& read, const VisitDocument& visit);
void visit_documents(TokenDataset& dataset, const VisitDocument& visit);

/// The vocabulary files that lie beside a set's first shard; none if the tokenizer has none or they are not there.
/// ErrorKind::data if they are of another vocabulary than the shards.
std::vector<VocabularyFile> vocabulary_files_of(const TokenDataset& dataset);

}  // namespace megatron
