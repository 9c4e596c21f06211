// The tokenizer of a Hugging Face model's folder, made from the first of its files that this program supports, and the
// kind of a single file. Knows which files such folders have; must not know models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

struct FolderTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  ///< nullptr: of no file
  std::string file;                      ///< the one that it was made from
  std::string refused;                   ///< why others that come first were not taken; empty if there are none
  std::int64_t left_out = 0;             ///< added tokens that the model has no rows for
};

/// `folder` ends with "/". In this order: tokenizer.json; vocab.json with merges.txt; vocab.txt, which is cased where
/// tokenizer_config.json says that it does not lower-case; tokenizer.model or spiece.model, with as many sentinels as
/// tokenizer_config.json says (T5's: 100 if not). After a tokenizer.json that is refused, files that say less about
/// how words are found are taken only where it asks for nothing else. `rows`: added tokens whose ids the model has no
/// row for are left out; 0: none are.
FolderTokenizer hugging_face_tokenizer(const std::string& folder, std::int64_t rows = 0);

/// The token that begins texts (<s>, <bos>).
struct BeginToken {
  std::int32_t id = 0;
  bool by_default = false;  ///< whether transformers puts it in front of every text
};
/// By tokenizer_config.json and the post-processor of tokenizer.json, or else by the vocabulary of `tokenizer`, which
/// is the folder's. `usual`: whether a model of this family begins texts with it where these files say nothing.
std::optional<BeginToken> begin_token_of_folder(const std::string& folder, const Tokenizer& tokenizer, bool usual);

/// The tokens that transformers puts around every text that an encoder reads.
struct SurroundingTokens {
  std::optional<std::int32_t> begin, end;
};
/// By the post-processor in `path`, a tokenizer.json; where there is no such file as BERT's and T5's classes do, by the
/// vocabulary of `tokenizer`. Ids outside that are left out.
SurroundingTokens surrounding_tokens(const std::string& path, const Tokenizer& tokenizer);

/// The kind of tokenizer that a file (and `merge_file`, if it is named) is for. ErrorKind::configuration if the name
/// does not tell.
TokenizerChoice choice_of_file(const std::string& vocab_file, const std::string& merge_file);

}  // namespace megatron
