#include "data/shards/shard_set.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

#include <algorithm>

namespace megatron {

namespace {

constexpr std::uint64_t kTokensAtATime = std::uint64_t{1} << 20;

}  // namespace

ShardSetWriter::ShardSetWriter(const std::string& prefix, const Vocabulary& vocabulary, std::uint64_t tokens_per_shard,
                               std::vector<VocabularyFile> files, Sentences sentences)
    : files_(prefix),
      vocabulary_(vocabulary),
      tokens_per_shard_(tokens_per_shard),
      vocabulary_files_(std::move(files)),
      sentences_(sentences) {
  check_prefix(prefix, "TARGET");
  lock_.emplace(prefix);
}

void ShardSetWriter::add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sentences) {
  if (shard_ == nullptr) {
    shard_ = std::make_unique<TokenShardWriter>(files_.begin_part(finished_shards_.size()), vocabulary_, sentences_);
  }
  if (sentences_ == Sentences::kept) {
    shard_->add_document(tokens, sentences);
  } else {
    shard_->add_document(tokens);
  }
  ++documents_;
  tokens_ += tokens.size();
  if (shard_->tokens() >= tokens_per_shard_) end_shard();
}

void ShardSetWriter::end_shard() {
  const std::uint64_t documents = shard_->documents(), tokens = shard_->tokens();
  finished_shards_.push_back({documents, tokens, shard_->finish()});
  shard_.reset();
}

void ShardSetWriter::finish(bool overwrite) {
  if (shard_ != nullptr) end_shard();
  verify(documents_ > 0, ErrorKind::data, "{}: there are no documents to write", files_.prefix());
  for (const VocabularyFile& file : vocabulary_files_) files_.write_vocabulary(file.name, file.contents);
  if (!overwrite) files_.require_replaceable(finished_shards_, vocabulary_);
  files_.publish(finished_shards_);
  files_.commit();
  files_.remove_leftovers();
}

void visit_documents(std::span<const std::uint64_t> starts, const ReadTokens& read, const VisitDocument& visit) {
  std::vector<std::int32_t> ids;
  for (std::size_t first = 0, end = 0; first + 1 < starts.size(); first = end) {
    // As many whole documents as are not too much at a time; one at least.
    end = static_cast<std::size_t>(std::upper_bound(starts.begin() + static_cast<std::ptrdiff_t>(first) + 2,
                                                    starts.end(), starts[first] + kTokensAtATime) -
                                   starts.begin()) -
          1;
    ids.resize(starts[end] - starts[first]);
    if (!ids.empty()) read(starts[first], ids.size(), ids.data());
    for (std::size_t i = first; i < end; ++i) {
      visit(std::span(ids).subspan(starts[i] - starts[first], starts[i + 1] - starts[i]));
    }
  }
}

void visit_documents(TokenDataset& dataset, const VisitDocument& visit) {
  visit_documents(
      dataset.document_starts(),
      [&](std::uint64_t first, std::uint64_t count, std::int32_t* ids) { dataset.read(first, count, ids); }, visit);
}

std::span<const std::uint64_t> PartLengths::next(std::uint64_t tokens) {
  lengths_.clear();
  const std::uint64_t end = starts_.at(at_) + tokens;
  while (starts_.at(at_) < end) {
    lengths_.push_back(starts_.at(at_ + 1) - starts_[at_]);
    ++at_;
  }
  internal_check(starts_[at_] == end, "a piece that ends inside one of its parts", starts_[at_], end);
  return lengths_;
}

std::vector<VocabularyFile> vocabulary_files_of(const Tokenizer& tokenizer) {
  std::vector<VocabularyFile> files;
  for (const TokenizerFile& file : tokenizer.files()) files.push_back({file.name, std::string(file.contents)});
  return files;
}

std::vector<VocabularyFile> vocabulary_files_of(const std::vector<std::unique_ptr<TokenDataset>>& sets) {
  const Vocabulary& vocabulary = sets.front()->vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return {};
  std::string others;
  for (const auto& set : sets) {
    for (const std::string& prefix : set->prefixes()) {
      const KeptTokenizer kept =
          find_kept_tokenizer(vocabulary.tokenizer, vocabulary.hash, vocabulary_path(prefix, ""));
      if (kept.tokenizer != nullptr) return vocabulary_files_of(*kept.tokenizer);
      if (!kept.others.empty()) others += (others.empty() ? "" : "; ") + kept.others;
    }
  }
  verify(others.empty(), ErrorKind::data,
         "{}; the shards next to it were made with the one of hash {:016x}: put that there, or remove this", others,
         vocabulary.hash);
  return {};
}

}  // namespace megatron
