// The files that AutoTokenizer of Hugging Face's transformers needs for the same ids: tokenizer.json in the form of its
// library, and tokenizer_config.json. Strings in, strings out; must not know folders.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizer/bpe_vocabulary.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// A vocabulary of two files or of ranks (rank_file.h) as tokenizer.json.
std::string write_tokenizer_json(const BpeVocabulary& vocabulary);

/// Frame that training puts around a text, and that a tokenizer.json's post-processor has to add: nothing, nothing
/// after it (what stands in front of a decoder's text is the prompt's), or [CLS] and [SEP].
enum class TextFrame { none, nothing_after, cls_sep };

/// Tokenizer::tokenizer_json() of a model that was trained here with this frame. The file as it is where it adds that.
std::string trained_tokenizer_json(const Tokenizer& tokenizer, TextFrame frame);

/// A tokenizer_config.json that names the class which takes tokenizer.json as it is. `longest`: tokens of a text.
/// `more`: an object of further entries, which replace others; or null.
std::string write_tokenizer_config(const Tokenizer& tokenizer, std::int64_t longest,
                                   const nlohmann::json& more = nullptr);

}  // namespace megatron
