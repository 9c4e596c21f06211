// What Hugging Face's transformers needs to make a tokenizer (AutoTokenizer) with the same ids: a tokenizer.json in the
// form of their library, and its tokenizer_config.json. Strings in, strings out; must not know folders.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/bpe_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace megatron {

/// A vocabulary with GPT-2's pattern and without added tokens but the one that ends documents, as tokenizer.json.
std::string write_tokenizer_json(const BpeVocabulary& vocabulary);

/// tokenizer_config.json, which names the class that takes tokenizer.json as it stands. `longest`: tokens of a text.
std::string write_tokenizer_config(const Tokenizer& tokenizer, std::int64_t longest);

}  // namespace megatron
