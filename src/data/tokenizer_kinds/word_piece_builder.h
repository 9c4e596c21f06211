// WordPieceBuilder: puts a WordPieceVocabulary together out of the tokens of a file, and checks it. Internal to
// src/data/tokenizer.
#pragma once

#include <string>

#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/word_piece_vocabulary.h"

namespace megatron {

inline constexpr const char* kWordPieceAdvice =
    "a BERT model's vocab.txt, or one that `megatron_preprocess train-tokenizer --type wordpiece` makes, is right";

class WordPieceBuilder {
 public:
  explicit WordPieceBuilder(const NamedText& file) : file_(file) {}

  /// `at` is where the token is in the file. Ids may come in any order, each once.
  void add(std::size_t at, std::string token, std::uint64_t id);
  /// One that is no piece of words.
  void add_whole(std::size_t at, std::string token, std::uint64_t id);
  /// -1 if there is none.
  std::int32_t id_of(std::string_view token) const;

  /// Adds what is missing of [BOS], [EOS] and `extra_ids` sentinels. Returns the tokens that were added.
  std::vector<std::string> complete(std::int64_t extra_ids);
  /// Everything but the options, `file` and `text`.
  WordPieceVocabulary finish();

 private:
  const NamedText& file_;
  TokenIndex ids_;
  std::unordered_set<std::int32_t> whole_;
};

/// The special tokens that a vocab.txt has, as added tokens.
std::vector<AddedToken> special_tokens_of(const WordPieceVocabulary& vocabulary);

}  // namespace megatron
