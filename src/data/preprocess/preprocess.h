// Preprocessor: text files to the token shards of one prefix.
//
// Owns what it writes until it is finished: its destructor removes the rest, and puts back what was there before. Knows
// nothing of ranks: one of them holds the TargetLock of the prefix for all. Errors name file and line: a bad document
// is ErrorKind::data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/preprocess/input_identity.h"
#include "data/preprocess/sentences.h"
#include "data/preprocess/text_corpus.h"
#include "data/shards/shard_files.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

struct PreprocessJob {
  TextInputs inputs;
  std::string output;  ///< PREFIX
  TokenizerChoice tokenizer;
  SpecialTokens special_tokens = SpecialTokens::text;
  /// To each document, and so to its last sentence. Default: unless sentences are kept for a tokenizer that tells words
  /// (BERT, T5): the token would be a word of the last one.
  std::optional<bool> append_eod;
  SentenceMode sentences = SentenceMode::none;
  std::string language = "en";  ///< for SentenceMode::icu
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;
};

/// Results of one block. Plain numbers, so that ranks can exchange it.
struct BlockSummary {
  std::uint64_t block = 0, documents = 0, tokens = 0, bad = 0, empty = 0;
  std::uint64_t hash = 0;  ///< hash of the shard's contents
};

/// The inputs are cut into blocks of --shard-bytes; a block's documents make one shard, whichever rank processes the
/// block. So the work can be shared out by block, and the shards are the same bytes whatever the number of ranks:
///
///   every rank:   open(), after inputs() has been told the sizes of the files
///   every rank:   process(block) for its own blocks                 -> temporary files of PREFIX-part-00000.h5 ...;
///                                                                      with block 0, those of the vocabulary
///   all together: exchange the summaries; an error anywhere         -> destroyed everywhere
///   one rank:     check_target(all summaries)                       -> an error where another set lies there
///   every rank:   publish(all summaries)                            -> PREFIX-00000.h5 ... for the blocks it processed
///   every rank:   finish(), after all have published                -> the set is complete; nothing more is discarded
///
/// A tokenizer that is made from files has them kept next to the shards: PREFIX.vocab.json, PREFIX.merges.txt. Blocks
/// without documents make no shard; shards are numbered without gaps.
class Preprocessor {
 public:
  /// Finds the inputs and checks the job; writes nothing.
  explicit Preprocessor(PreprocessJob job);
  Preprocessor(const Preprocessor&) = delete;
  Preprocessor& operator=(const Preprocessor&) = delete;

  /// The texts, without their sizes.
  TextCorpus& inputs() { return *corpus_; }
  /// Cuts the inputs into blocks. ErrorKind::configuration if there are too many.
  void open();

  std::uint64_t blocks() const { return blocks_.size(); }
  std::uint64_t input_bytes() const { return corpus_->bytes(); }
  std::uint64_t block_bytes(std::uint64_t block) const;  ///< in the input
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool appends_eod() const { return append_eod_; }
  /// Gives the shards of this object's blocks a provenance, before process(); empty: none.
  void set_provenance(std::string json) { provenance_ = std::move(json); }
  /// Identities of all files, in their order; reads some of each.
  std::vector<InputIdentity> identify_inputs() const;

  /// Called now and then with the bytes of input read in this block so far.
  using Progress = std::function<void(std::uint64_t bytes)>;
  BlockSummary process(std::uint64_t block, const Progress& progress = {});

  /// Before the work, by one rank: whether a whole set lies under the prefix. ErrorKind::configuration if it was made
  /// with another tokenizer.
  bool target_exists() const;
  /// Before any rank publishes, by one rank: ErrorKind::configuration if another whole set lies under the prefix.
  void check_target(const std::vector<BlockSummary>& all) const;
  /// Gives the shards of this object's blocks, and the vocabulary, their final names. `all`: the summaries of every
  /// block, by block.
  void publish(const std::vector<BlockSummary>& all);
  /// All ranks have published. One of them removes what older runs have left under this prefix: shards of a longer set,
  /// and temporary files of a killed run.
  void finish(bool remove_leftovers);

 private:
  class BlockReader;
  PreprocessJob job_;
  std::string provenance_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  bool append_eod_;
  SentenceSplitter splitter_;
  std::unique_ptr<TextCorpus> corpus_;
  std::vector<std::vector<Segment>> blocks_;
  ShardSetFiles files_;
};

}  // namespace megatron
