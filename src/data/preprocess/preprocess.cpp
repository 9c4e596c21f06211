#include "data/preprocess/preprocess.h"

#include <algorithm>
#include <new>
#include <utility>

#include "data/preprocess/json_text.h"
#include "data/shards/shard_provenance.h"
#include "data/shards/token_shard.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

constexpr std::uint64_t kSmallestShard = 4096, kLargestShard = std::uint64_t{1} << 50, kMostBlocks = 1'000'000;

}  // namespace

Preprocessor::Preprocessor(PreprocessJob job)
    : job_(std::move(job)),
      tokenizer_(make_tokenizer(job_.tokenizer)),
      encoder_(tokenizer_->make_encoder(job_.special_tokens)),
      append_eod_(job_.append_eod.value_or(job_.sentences == SentenceMode::none || tokenizer_->continues().empty())),
      splitter_(job_.sentences, job_.language),
      files_(job_.output) {
  verify(!job_.inputs.paths.empty(), ErrorKind::configuration, "give at least one --input");
  check_prefix(job_.output, "--output");
  verify(job_.shard_bytes >= kSmallestShard && job_.shard_bytes <= kLargestShard, ErrorKind::configuration,
         "--shard-bytes: at least {}, at most {}", kSmallestShard, kLargestShard);
  job_.inputs.arrays = job_.sentences == SentenceMode::array;
  corpus_ = std::make_unique<TextCorpus>(job_.inputs, TextCorpus::Sizes::told_later);
}

void Preprocessor::open() {
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

std::vector<InputIdentity> Preprocessor::identify_inputs() const {
  std::vector<InputIdentity> files;
  for (std::size_t i = 0; i < corpus_->files(); ++i) files.push_back(identify_input(corpus_->path(i)));
  return files;
}

/// Turns the documents of one block into one shard.
class Preprocessor::BlockReader {
 public:
  BlockReader(Preprocessor& owner, std::uint64_t block, const Progress& progress)
      : owner_(owner),
        progress_(progress),
        path_(owner.files_.begin_part(block)),
        writer_(path_, vocabulary_of(*owner.tokenizer_),
                owner.job_.sentences == SentenceMode::none ? Sentences::unknown : Sentences::kept) {
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
    if (summary_.documents == 0) return summary_;
    summary_.hash = writer_.finish();
    if (!owner_.provenance_.empty()) add_provenance(path_, owner_.provenance_);
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
    } else if (owner_.job_.sentences != SentenceMode::none) {
      writer_.add_document(ids_, lengths_);
    } else {
      writer_.add_document(ids_);  // not tried: half a document in the shard could not be left out
    }
  }

  /// The document's ids in ids_, and the lengths of its sentences in lengths_; none of an empty text.
  void encode(std::string_view text) {
    ids_.clear();
    lengths_.clear();
    try {
      if (owner_.job_.sentences == SentenceMode::none) {
        owner_.encoder_->encode(text, ids_);
      } else {
        for (const std::string_view sentence : owner_.splitter_.split(text, owner_.corpus_->string_ends())) {
          encode_sentence(sentence);
        }
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw BadDocument{error.what()};
    }
    if (!ids_.empty() && owner_.append_eod_) add_end();
  }
  void encode_sentence(std::string_view sentence) {
    while (!sentence.empty() && is_space(sentence.front())) sentence.remove_prefix(1);
    while (!sentence.empty() && is_space(sentence.back())) sentence.remove_suffix(1);
    const std::size_t before = ids_.size();
    owner_.encoder_->encode(sentence, ids_);
    if (ids_.size() > before) lengths_.push_back(ids_.size() - before);
  }
  void add_end() {
    ids_.push_back(owner_.tokenizer_->eod_id());
    if (!lengths_.empty()) ++lengths_.back();
  }
  static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

  Preprocessor& owner_;
  const Progress& progress_;
  BlockSummary summary_;
  std::string path_;
  TokenShardWriter writer_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint64_t> lengths_;
};

BlockSummary Preprocessor::process(std::uint64_t block, const Progress& progress) {
  internal_check(block < blocks(), "block outside the input", block, blocks());
  prepare_prefix(job_.output, "--output");
  if (block == 0) {
    for (const TokenizerFile& file : tokenizer_->files()) files_.write_vocabulary(file.name, file.contents);
  }
  return BlockReader(*this, block, progress).run();
}

namespace {

std::vector<ShardSummary> summaries_of(const std::vector<BlockSummary>& all) {
  std::vector<ShardSummary> parts;
  for (const BlockSummary& block : all) parts.push_back({block.documents, block.tokens, block.hash});
  return parts;
}

}  // namespace

bool Preprocessor::target_exists() const {
  return find_replaceable(job_.output, vocabulary_of(*tokenizer_));
}

void Preprocessor::check_target(const std::vector<BlockSummary>& all) const {
  files_.require_replaceable(summaries_of(all), vocabulary_of(*tokenizer_));
}

void Preprocessor::publish(const std::vector<BlockSummary>& all) {
  internal_check(all.size() == blocks(), "summaries of every block are needed to publish", all.size(), blocks());
  std::uint64_t documents = 0;
  for (const BlockSummary& block : all) documents += block.documents;
  verify(documents > 0, ErrorKind::data, "{}{}: no text was found, so there is nothing to write",
         job_.inputs.paths.front(), job_.inputs.paths.size() > 1 ? " and the other inputs" : "");
  files_.publish(summaries_of(all));
}

void Preprocessor::finish(bool remove_leftovers) {
  files_.commit();
  if (remove_leftovers) files_.remove_leftovers();
}

}  // namespace megatron
