// Hugging Face's tokenizer.json, as far as it describes a byte-level BPE: GPT-2's kind, and those of Llama 3, Qwen2 and
// Qwen3, StarCoder and GPT-NeoX, GPT-4o and Mistral.
#pragma once

#include <string>

#include "data/tokenizer/bpe_vocabulary.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

/// Reads these parts of the file:
///
///   model            type BPE: vocab {"token": id}, merges ["left right"] or [["left", "right"]], ignore_merges
///   normalizer       NFC, NFD, NFKC, NFKD, Lowercase, or a Sequence of these, or none
///   pre_tokenizer    ByteLevel; or a Sequence of Split (patterns: piece_scanner.h) or Digits, then ByteLevel
///   added_tokens     special: found in a text only where this is asked for; others: found first
///   decoder          ByteLevel, or none
///   post_processor   special tokens around a text; never added here
///
/// The vocabulary is checked as bpe_vocabulary.h says, but that an added token may repeat the bytes of another token,
/// that merges may come in any order, and that with ignore_merges tokens need not be made by merges. Anything else that
/// a file asks for is refused by name: a tokenizer that is nearly the right one would be worse than none.
///
/// With the added tokens of the file's folder, and without those whose ids are `rows` or greater, if that is not 0.
/// Errors as read_bpe_vocabulary.
BpeVocabulary read_tokenizer_json(const std::string& path, std::int64_t rows = 0, const FolderSettings& folder = {});
/// The same of a text.
BpeVocabulary parse_tokenizer_json(NamedText file, std::int64_t rows = 0);

}  // namespace megatron
