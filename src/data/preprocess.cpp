#include "data/preprocess.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <utility>

#include "data/json_text.h"
#include "data/shard_set.h"
#include "data/token_shard.h"
#include "hdf5/durable_file.h"

namespace megatron {

namespace {

constexpr const char* kTemporary = ".tmp";
constexpr std::uint64_t kSmallestShard = 4096, kMostBlocks = 1'000'000;

std::uint64_t shard_count(const std::vector<BlockSummary>& all) {
  return static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const BlockSummary& block) { return block.documents > 0; }));
}

std::uint64_t hash_of_blocks(const std::vector<BlockSummary>& all) {
  std::vector<ShardSummary> shards;
  for (const BlockSummary& block : all) {
    if (block.documents > 0) shards.push_back({block.documents, block.tokens, block.hash});
  }
  return hash_of_set(shards);
}

}  // namespace

Preprocessor::Preprocessor(PreprocessJob job)
    : job_(std::move(job)), tokenizer_(make_tokenizer(job_.tokenizer)), encoder_(tokenizer_->make_encoder()) {
  verify(!job_.inputs.paths.empty(), ErrorKind::configuration, "give at least one --input");
  verify(!job_.output.empty() && job_.output.back() != '/', ErrorKind::configuration,
         "--output \"{}\": give a prefix of file names, as in data/stories", job_.output);
  verify(job_.shard_bytes >= kSmallestShard, ErrorKind::configuration, "--shard-bytes {}: at least {}",
         job_.shard_bytes, kSmallestShard);
  corpus_ = std::make_unique<TextCorpus>(job_.inputs);
  verify(input_bytes() / job_.shard_bytes < kMostBlocks, ErrorKind::configuration,
         "--shard-bytes {}: {} bytes of input would make more than {} shards; choose larger ones", job_.shard_bytes,
         input_bytes(), kMostBlocks);
  blocks_ = cut_into_blocks(corpus_->file_bytes(), job_.shard_bytes);
}

std::uint64_t Preprocessor::block_bytes(std::uint64_t block) const {
  std::uint64_t sum = 0;
  for (const Segment& segment : blocks_.at(block)) sum += segment.end - segment.begin;
  return sum;
}

std::string Preprocessor::temporary_path(std::uint64_t block) const {
  return fmt::format("{}-part-{:05}.h5.tmp", job_.output, block);
}

void Preprocessor::write_vocabulary() {
  for (const TokenizerFile& file : tokenizer_->files()) {
    const std::string path = vocabulary_path(job_.output, file.name);
    vocabulary_.push_back(path);
    write_durably(path + kTemporary, file.contents);
  }
}

/// Turns the documents of one block into one shard.
class Preprocessor::BlockReader {
 public:
  BlockReader(Preprocessor& owner, std::uint64_t block, const Progress& progress)
      : owner_(owner), progress_(progress), writer_(owner.temporary_path(block), vocabulary_of(*owner.tokenizer_)) {
    summary_.block = block;
  }

  BlockSummary run() {
    std::uint64_t bytes_before = 0;
    for (const Segment& segment : owner_.blocks_[summary_.block]) {
      summary_.bad += owner_.corpus_->visit(
          segment, [&](std::string_view text) { add(text); },
          [&](std::uint64_t bytes) {
            if (progress_) progress_(bytes_before + bytes);
          });
      bytes_before += segment.end - segment.begin;
    }
    summary_.documents = writer_.documents();
    summary_.tokens = writer_.tokens();
    if (summary_.documents > 0) summary_.hash = writer_.finish();
    return summary_;
  }

 private:
  void add(std::string_view text) {
    try {
      encode(text);
    } catch (const std::bad_alloc&) {
      ids_ = {};
      throw BadDocument{"too little memory to encode this document"};
    }
    if (ids_.empty()) {
      ++summary_.empty;
    } else {
      writer_.add_document(ids_);  // not tried: half a document in the shard could not be left out
    }
  }

  /// The document's ids in ids_; none of an empty text.
  void encode(std::string_view text) {
    ids_.clear();
    try {
      owner_.encoder_->encode(text, ids_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw BadDocument{error.what()};
    }
    if (!ids_.empty() && owner_.job_.append_eod) ids_.push_back(owner_.tokenizer_->eod_id());
  }

  Preprocessor& owner_;
  const Progress& progress_;
  BlockSummary summary_;
  TokenShardWriter writer_;
  std::vector<std::int32_t> ids_;
};

BlockSummary Preprocessor::process(std::uint64_t block, const Progress& progress) {
  internal_check(block < blocks(), "block outside the input");
  prepare_prefix(job_.output, "--output");
  if (block == 0) write_vocabulary();
  const BlockSummary summary = BlockReader(*this, block, progress).run();
  if (summary.documents > 0) unpublished_.push_back(block);
  return summary;
}

void Preprocessor::publish(const std::vector<BlockSummary>& all) {
  internal_check(all.size() == blocks(), "summaries of every block are needed to publish");
  const std::uint64_t count = shard_count(all), hash = hash_of_blocks(all);
  verify(count > 0, ErrorKind::data, "{}{}: no text was found, so there is nothing to write", job_.inputs.paths.front(),
         job_.inputs.paths.size() > 1 ? " and the other inputs" : "");
  std::sort(unpublished_.begin(), unpublished_.end());
  std::uint64_t index = 0;
  std::size_t mine = 0;
  for (const BlockSummary& block : all) {
    if (block.documents == 0) continue;
    if (mine < unpublished_.size() && unpublished_[mine] == block.block) {
      publish_shard(temporary_path(block.block), job_.output, index, count, hash);
      published_.push_back(shard_path(job_.output, index));
      ++mine;
    }
    ++index;
  }
  for (const std::string& path : vocabulary_) {
    rename_durably(path + kTemporary, path);
    published_.push_back(path);
  }
  vocabulary_.clear();
  internal_check(mine == unpublished_.size(), "a processed block is missing among the summaries");
  unpublished_.clear();
}

void Preprocessor::finish(const std::vector<BlockSummary>& all, bool remove_leftovers) {
  published_.clear();
  if (!remove_leftovers) return;
  std::vector<std::string> names;
  for (const TokenizerFile& file : tokenizer_->files()) names.push_back(file.name);
  megatron::remove_leftovers(job_.output, shard_count(all), names);
}

void Preprocessor::discard() noexcept {
  for (const std::uint64_t block : unpublished_) remove_quietly(temporary_path(block));
  for (const std::string& path : vocabulary_) remove_quietly(path + kTemporary);
  for (const std::string& path : published_) remove_quietly(path);
  unpublished_.clear();
  vocabulary_.clear();
  published_.clear();
}

}  // namespace megatron
