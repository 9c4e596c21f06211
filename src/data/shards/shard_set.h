// ShardSetWriter: documents, one after the other, to the token shards of one prefix. For who has tokens already;
// Preprocessor makes them from text, on many ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/file_lock.h"
#include "data/shards/shard_files.h"
#include "data/shards/token_dataset.h"
#include "data/shards/token_shard.h"

namespace megatron {

struct VocabularyFile {
  std::string name, contents;  ///< one of kTokenizerFiles
};

/// Nothing has its final name until finish(); without it, or if it fails, what was there before is as it was. No
/// other process may write this prefix at the same time.
class ShardSetWriter {
 public:
  /// A new shard is begun after `tokens_per_shard`, with the next document.
  ShardSetWriter(const std::string& prefix, const Vocabulary& vocabulary, std::uint64_t tokens_per_shard,
                 std::vector<VocabularyFile> files = {}, Sentences sentences = Sentences::unknown);
  ShardSetWriter(const ShardSetWriter&) = delete;
  ShardSetWriter& operator=(const ShardSetWriter&) = delete;

  /// As TokenShardWriter::add_document.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sentences = {});
  /// Gives all files their names. ErrorKind::data if there were no documents; ErrorKind::configuration if another whole
  /// set lies there that is not to be overwritten.
  void finish(bool overwrite);

  std::uint64_t documents() const { return documents_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t shards() const { return finished_shards_.size(); }

 private:
  void end_shard();

  std::optional<TargetLock> lock_;
  ShardSetFiles files_;
  Vocabulary vocabulary_;
  std::uint64_t tokens_per_shard_;
  std::vector<VocabularyFile> vocabulary_files_;
  Sentences sentences_;
  std::unique_ptr<TokenShardWriter> shard_;
  std::vector<ShardSummary> finished_shards_;
  std::uint64_t documents_ = 0, tokens_ = 0;
};

using ReadTokens = std::function<void(std::uint64_t first, std::uint64_t count, std::int32_t* ids)>;
using VisitDocument = std::function<void(std::span<const std::int32_t> tokens)>;

/// Calls `visit` with the tokens of each document, in order; many are read at a time. Document d has the tokens
/// [starts[d], starts[d + 1]). Memory: a few MiB, or the longest document.
void visit_documents(std::span<const std::uint64_t> starts, const ReadTokens& read, const VisitDocument& visit);
void visit_documents(TokenDataset& dataset, const VisitDocument& visit);

/// The lengths of the parts of one piece after another, where `starts` has all parts' and the pieces end at some of
/// them.
class PartLengths {
 public:
  explicit PartLengths(std::vector<std::uint64_t> starts) : starts_(std::move(starts)) {}
  /// Lengths of the parts of the next piece, which has this number of tokens.
  std::span<const std::uint64_t> next(std::uint64_t tokens);

 private:
  std::vector<std::uint64_t> starts_, lengths_;
  std::size_t at_ = 0;
};

/// Copies of the files that a tokenizer was made from; none if it was made from none.
std::vector<VocabularyFile> vocabulary_files_of(const Tokenizer& tokenizer);
/// The files of the tokenizer of these sets, which are of one, found next to the first of them that has them; none
/// if the tokenizer has none or they are nowhere. ErrorKind::data if all that lie there are damaged or of other
/// vocabularies.
std::vector<VocabularyFile> vocabulary_files_of(const std::vector<std::unique_ptr<TokenDataset>>& sets);

}  // namespace megatron
