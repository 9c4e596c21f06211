// Hugging Face's tokenizer.json, as far as it describes a byte-level BPE with GPT-2's pattern:
//
//   model            type BPE: vocab {"token": id}, merges ["left right"] or [["left", "right"]]
//   pre_tokenizer    ByteLevel, with or without add_prefix_space
//   added_tokens     special ones are ids that no text has (<|endoftext|>, which ends documents, must be one of them or
//                    of the vocabulary); the others are found in the text before anything else
//   decoder, post_processor   ByteLevel, or none
//
// The vocabulary is checked as bpe_vocabulary.h says. What else a file asks for is refused by name: a tokenizer that is
// nearly the right one would be worse than none.
#pragma once

#include <string>

#include "tokenizer/bpe_vocabulary.h"

namespace megatron {

/// Errors as read_bpe_vocabulary.
BpeVocabulary read_tokenizer_json(const std::string& path);

}  // namespace megatron
