// UnigramTrainer: makes the pieces of a Unigram model from text, as Kudo (2018) describes it: frequent parts of words
// first, then expectation maximisation of their probabilities, and pieces are dropped whose loss costs least, again and
// again. Words are those that a tokenizer of write_unigram_json sees: NFC, cut at white space, with kSpaceMark in
// front.
//
// The result depends on the text and on this machine's exp and log: equal pieces may be told apart by a last bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer_training/word_counts.h"

namespace megatron {

inline constexpr std::int64_t kSmallestUnigramVocabulary = 64;  ///< without sentinels

class UnigramTrainer {
 public:
  UnigramTrainer();

  /// Counts the words of a text.
  void add_text(std::string_view text);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t distinct_words() const { return words_.size(); }

  /// Pieces and their log probabilities, the most probable first: at most `most`, fewer if no other part of the text
  /// that occurs `least_count` times makes it more probable. Characters of the 99.95 % most frequent occurrences are
  /// pieces, at most half of `most`; others will be <unk>. To be called once.
  std::vector<std::pair<std::string, double>> train(std::int64_t most, std::int64_t least_count);

 private:
  std::vector<NormalizerStep> steps_;
  TextNormalizer normalizer_;
  std::string word_;
  WordCounts words_;
  std::uint64_t bytes_ = 0;
};

}  // namespace megatron
