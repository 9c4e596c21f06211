#include "data/shard_set.h"

#include <algorithm>
#include <filesystem>

#include "hdf5/durable_file.h"

namespace megatron {

namespace {

constexpr const char* kTemporary = ".tmp";
constexpr std::uint64_t kTokensAtATime = std::uint64_t{1} << 20;

}  // namespace

std::uint64_t hash_of_set(const std::vector<ShardSummary>& shards) {
  std::vector<std::uint64_t> numbers;
  for (const ShardSummary& shard : shards) {
    numbers.insert(numbers.end(), {shard.documents, shard.tokens, shard.hash});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

void remove_leftovers(const std::string& prefix, std::uint64_t shards,
                      const std::vector<std::string>& vocabulary_files) {
  namespace fs = std::filesystem;
  const std::string stem = fs::path(prefix).filename().string() + "-";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(prefix))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(stem)) continue;
    const std::string_view rest = std::string_view(name).substr(stem.size());
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const bool shard = digits >= 5 && digits <= 9 && rest.substr(digits) == ".h5" &&
                       std::stoull(std::string(rest.substr(0, digits))) >= shards;
    if (shard || (rest.starts_with("part-") && rest.ends_with(".h5.tmp"))) remove_quietly(entry.path().string());
  }
  for (const char* file : kTokenizerFiles) {
    const std::string path = vocabulary_path(prefix, file);
    remove_quietly(path + kTemporary);
    if (std::find(vocabulary_files.begin(), vocabulary_files.end(), file) == vocabulary_files.end())
      remove_quietly(path);
  }
  sync_path(folder_of(prefix));
}

void prepare_prefix(const std::string& prefix, const char* option) {
  verify(!prefix.empty() && prefix.back() != '/', ErrorKind::configuration,
         "{} \"{}\": give a prefix of file names, as in data/stories", option, prefix);
  const std::string folder = folder_of(prefix);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, error.message());
}

ShardSetWriter::ShardSetWriter(const std::string& prefix, const Vocabulary& vocabulary, std::uint64_t tokens_per_shard,
                               std::vector<VocabularyFile> files)
    : prefix_(prefix), vocabulary_(vocabulary), tokens_per_shard_(tokens_per_shard), files_(std::move(files)) {
  prepare_prefix(prefix, "TARGET");
}

ShardSetWriter::~ShardSetWriter() {
  for (const std::string& path : written_) remove_quietly(path);
}

std::string ShardSetWriter::temporary_path(std::uint64_t shard) const {
  return fmt::format("{}-part-{:05}.h5.tmp", prefix_, shard);
}

void ShardSetWriter::add_document(std::span<const std::int32_t> tokens) {
  if (shard_ == nullptr) {
    shard_ = std::make_unique<TokenShardWriter>(temporary_path(finished_shards_.size()), vocabulary_);
  }
  shard_->add_document(tokens);
  ++documents_;
  tokens_ += tokens.size();
  if (shard_->tokens() >= tokens_per_shard_) end_shard();
}

void ShardSetWriter::end_shard() {
  ShardSummary summary{shard_->documents(), shard_->tokens(), shard_->finish()};
  written_.push_back(temporary_path(finished_shards_.size()));
  finished_shards_.push_back(summary);
  shard_.reset();
}

void ShardSetWriter::finish() {
  if (shard_ != nullptr) end_shard();
  verify(documents_ > 0, ErrorKind::data, "{}: there are no documents to write", prefix_);
  for (const VocabularyFile& file : files_) {
    const std::string path = vocabulary_path(prefix_, file.name);
    written_.push_back(path + kTemporary);
    write_durably(path + kTemporary, file.contents);
  }
  const std::uint64_t hash = hash_of_set(finished_shards_);
  for (std::uint64_t i = 0; i < shards(); ++i) {
    publish_shard(temporary_path(i), prefix_, i, shards(), hash);
    written_.push_back(shard_path(prefix_, i));
  }
  for (const VocabularyFile& file : files_) {
    const std::string path = vocabulary_path(prefix_, file.name);
    rename_durably(path + kTemporary, path);
    written_.push_back(path);
  }
  written_.clear();
  std::vector<std::string> names;
  for (const VocabularyFile& file : files_) names.push_back(file.name);
  remove_leftovers(prefix_, shards(), names);
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

std::vector<VocabularyFile> vocabulary_files_of(const TokenDataset& dataset) {
  const Vocabulary& vocabulary = dataset.vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return {};
  const auto choice = kept_tokenizer(vocabulary.tokenizer, vocabulary_path(dataset.prefix(), ""));
  if (!choice) return {};
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(*choice);
  verify(tokenizer->hash() == vocabulary.hash, ErrorKind::data,
         "{}{}{}: another vocabulary than the shards beside it were made with; put the right one there, or remove this",
         choice->vocab_file, choice->merge_file.empty() ? "" : " and ", choice->merge_file);
  std::vector<VocabularyFile> files;
  for (const TokenizerFile& file : tokenizer->files()) files.push_back({file.name, std::string(file.contents)});
  return files;
}

}  // namespace megatron
