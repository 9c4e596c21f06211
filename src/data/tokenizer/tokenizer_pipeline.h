// TokenizerPipeline: what a tokenizer.json does to a text before and after the model sees it, as far as this
// program has it. Internal to src/data/tokenizer; must not know files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer/unigram_vocabulary.h"

namespace megatron {

/// Something that a file asks for and is not supported: the caller knows the place and says it.
struct UnsupportedStep {
  std::string what;
};

/// normalizer of a byte-level BPE: null, NFC, NFD, NFKC, NFKD or Lowercase, or a Sequence of these.
std::vector<NormalizerStep> read_normalizer(std::string_view json);
/// The same the other way.
nlohmann::json written_normalizer(const std::vector<NormalizerStep>& steps);

struct PreTokenizer {
  SplitPattern pattern = SplitPattern::gpt2;
  bool add_prefix_space = false;
};
/// ByteLevel, or a Sequence of Split with a published pattern and ByteLevel without, or of Digits and ByteLevel.
PreTokenizer read_pre_tokenizer(std::string_view json);
/// The regular expression of a pattern, as files have it; empty for `single_digits`, which is none.
std::string_view regex_of(SplitPattern pattern);
/// The pattern with this regular expression; nullopt if it is none of ours.
std::optional<SplitPattern> pattern_of_regex(std::string_view regex);

/// decoder: null or ByteLevel, or a Sequence of these.
void check_decoder(std::string_view json);

/// post_processor: anything that leaves the ids alone but for special tokens around them, which are never added here.
void check_post_processor(std::string_view json);

/// normalizer of a WordPiece model: BertNormalizer.
struct BertNormalizer {
  bool clean = true, ideographs = true, strip_accents = true, lower_case = true;
};
BertNormalizer read_bert_normalizer(std::string_view json);
/// pre_tokenizer: BertPreTokenizer.
void check_bert_pre_tokenizer(std::string_view json);
/// decoder: WordPiece. Whether it closes up spaces before punctuation.
bool read_word_piece_decoder(std::string_view json);

/// The parts of a Unigram model's file (unigram_vocabulary.h).
std::vector<NormalizerStep> read_unigram_normalizer(std::string_view json);
struct Metaspace {
  bool split_at_spaces = true, drop_spaces = false;
  PrefixSpace prefix = PrefixSpace::always;
};
Metaspace read_metaspace(std::string_view json);
void check_unigram_decoder(std::string_view json);

}  // namespace megatron
