// WordPieceVocabulary: BERT's vocabulary, from a vocab.txt (a token per line, the first has id 0) or a tokenizer.json
// of type WordPiece, checked before anything uses it.
//
// [CLS] [SEP] [MASK] [PAD] [UNK] must be there. As Megatron-LM does, [BOS] and [EOS] and the sentinels <extra_id_0> ...
// that are asked for are added after the last token where they are absent; the file that is kept has them too, so that
// reading it again gives the same vocabulary. Errors are ErrorKind::data and name file and line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/token_index.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

inline constexpr std::string_view kContinuation = "##";
inline constexpr std::size_t kLongestWord = 100;  ///< characters, as transformers has it; Megatron-LM has 200

struct WordPieceVocabulary {
  std::vector<std::string> tokens;  ///< by id, as written
  TokenIndex first, continuing;     ///< tokens that begin a word, and those that continue one, without "##"
  std::size_t longest = 0;          ///< bytes of the longest of these
  SpecialIds special;
  std::vector<AddedToken> added;
  std::string file, text;  ///< file to keep: kWordPieceFile or kTokenizerFile, and its contents
  // Rules for texts (bert_characters.h); vocab.txt has the defaults.
  bool clean = true, ideographs = true, strip_accents = true, lower_case = true, close_up = true;
  std::size_t longest_word = kLongestWord;
};

/// Where a folder's settings say more than vocab.txt does, it becomes the tokenizer.json that says all of it.
WordPieceVocabulary read_word_piece_text(const std::string& path, bool lower_case, std::int64_t extra_ids,
                                         std::int64_t rows = 0, const FolderSettings& folder = {});
WordPieceVocabulary read_word_piece_json(const std::string& path, std::int64_t extra_ids, std::int64_t rows = 0,
                                         const FolderSettings& folder = {});
WordPieceVocabulary parse_word_piece_json(NamedText file, std::int64_t extra_ids, std::int64_t rows = 0);

/// tokenizer.json of a vocabulary, for Hugging Face's library.
std::string write_word_piece_json(const WordPieceVocabulary& vocabulary);

}  // namespace megatron
