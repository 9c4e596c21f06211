// The choice of a tokenizer: by name and files, or by the files that were kept next to shards, a run or a checkpoint.
//
// This layer has every kind of tokenizer; everything above it sees the interface alone (data/tokenizer/tokenizer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// Whether the tokenizer of this name is made from files.
bool tokenizer_has_files(std::string_view name);
/// For messages: the files that it is made from, in words, each with `before` in front.
std::string kept_file_names(std::string_view name, const std::string& before);

inline constexpr std::int64_t kMostExtraIds = 10'000;

struct TokenizerChoice {
  std::string name = "byte";  ///< one of those that make_tokenizer lists
  /// gpt2: kVocabFile and kMergeFile, or kTokenizerFile alone as vocab_file. Without merge_file, a vocab_file
  /// whose name ends with kVocabFile is paired with the file next to it whose name ends with kMergeFile instead.
  /// bert-*: kWordPieceFile, or kTokenizerFile (by the ending .json), as vocab_file.
  /// sentencepiece: kSentencePieceFile; unigram: kTokenizerFile.
  /// Settings of Hugging Face's files next to it count, too; next to kTokenizerFile the added tokens.
  std::string vocab_file, merge_file;
  /// bert-*, sentencepiece, unigram: sentinels <extra_id_0> ... that the vocabulary is to have, added if absent.
  std::int64_t extra_ids = 0;
  /// Rows of the model's tables that it is for: added tokens with ids beyond them are left out. 0: none are.
  std::int64_t rows = 0;
  /// A kept file, which says all by itself; those next to it are another's.
  bool alone = false;
};

/// ErrorKind::configuration if there is no such tokenizer (listing what exists) or its files are not named;
/// ErrorKind::data for what is wrong in them.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice);

/// Result of a search for a tokenizer under the names of a tokenizer's files.
struct KeptTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  ///< the one that was looked for; nullptr: it is not there
  std::string others;  ///< the files that are there instead, and why they are not it; empty if there are none
};

/// Looks for a tokenizer whose files were kept, under their own names after `before` ("data/stories." or
/// "run/tokenizer/"): kTokenizerFile, kVocabFile with kMergeFile, kWordPieceFile or kSentencePieceFile. The hash tells
/// which it is, since some may have been left there by another one; damaged files are not it.
KeptTokenizer find_kept_tokenizer(const std::string& name, std::uint64_t hash, const std::string& before);

}  // namespace megatron
