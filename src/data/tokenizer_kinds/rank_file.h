// Rank files: byte-level BPE vocabularies whose tokens have ranks instead of merges, read into merges. Every way to cut
// a token into two is a merge with the token's rank, and a piece that is a token stays whole. What is kept is a
// tokenizer.json of the same mapping.
#pragma once

#include <cstdint>
#include <string>

#include "data/tokenizer/bpe_vocabulary.h"

namespace megatron {

/// Whether a file has ranks: by the name NAME.tiktoken, and of .model and .json files by what is in them.
bool is_rank_file(const std::string& path);

/// Reads one of these:
///
///   NAME.tiktoken    lines "base64 rank", as tiktoken has them (also the tokenizer.model of GLM-4 and Llama 3)
///   tekken.json      mistral-common's: config (pattern, sizes), vocab [{rank, token_bytes}], special_tokens
///
/// Lines of ranks do not say the split pattern and the special tokens: these are known by the file's name, or by
/// "added_tokens_decoder" of the tokenizer_config.json next to it. Errors as read_bpe_vocabulary.
///
/// `rows`: special tokens whose ids the model has no row for are left out; 0: none are.
BpeVocabulary read_rank_file(const std::string& path, std::int64_t rows = 0);

}  // namespace megatron
