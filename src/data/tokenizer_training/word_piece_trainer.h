// WordPieceTrainer: makes a WordPiece vocabulary from text, in the way of Hugging Face's WordPieceTrainer: words as
// BERT sees them, cut into characters of which all but the first are written "##c", then the pair of neighbours that
// occurs most often becomes a token, again and again. The result depends on the text alone.
//
// The vocabulary is [PAD] [UNK] [CLS] [SEP] [MASK], the most frequent characters (by code point, then those with "##"),
// and the tokens as they were made. A word with a rarer character teaches nothing: it will be [UNK].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/tokenizer_kinds/word_piece_vocabulary.h"
#include "data/tokenizer_kinds/word_splitter.h"
#include "data/tokenizer_training/word_counts.h"

namespace megatron {

inline constexpr std::int64_t kSmallestWordPieceVocabulary = 64;
inline constexpr std::size_t kLargestAlphabet = 1000;  ///< characters

class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(bool lower_case);

  /// Counts the words of a text.
  void add_text(std::string_view text);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t distinct_words() const { return words_.size(); }

  /// The lines of vocab.txt, at most `vocab_size`: fewer if no pair is left that occurs `least_count` times. To be
  /// called once.
  std::vector<std::string> train(std::int64_t vocab_size, std::int64_t least_count);

 private:
  WordPieceVocabulary rules_;
  WordSplitter splitter_;
  WordCounts words_;
  std::uint64_t bytes_ = 0;
};

}  // namespace megatron
