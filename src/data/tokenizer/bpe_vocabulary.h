// BpeVocabulary: a byte-level BPE as GPT-2 publishes it, read from its two files and checked before anything uses it.
// tokenizer_json.h says where a tokenizer.json may differ.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer/token_index.h"

namespace megatron {

struct BpeMerge {
  std::int32_t left = 0, right = 0, result = 0;
};

struct BpeVocabulary {
  std::vector<std::string> tokens;           ///< by id, as bytes
  std::vector<BpeMerge> merges;              ///< by rank
  std::array<std::int32_t, 256> byte_ids{};  ///< -1 for a byte that is no token, which UTF-8 does not have
  std::int32_t end_of_text = 0;              ///< id of the token that ends documents
  std::string vocab_text, merge_text;        ///< the files as they were
  // From tokenizer.json (tokenizer_json.h):
  std::string tokenizer_text;              ///< the file as it was, instead of those two
  std::vector<NormalizerStep> normalizer;  ///< steps that are applied to texts first
  SplitPattern pattern = SplitPattern::gpt2;
  bool add_prefix_space = false;  ///< a text that does not begin with a space is encoded as if it did
  bool ignore_merges = false;     ///< a piece that is one of whole_pieces is that token, whatever the merges make of it
  TokenIndex whole_pieces;
  std::vector<AddedToken> added;  ///< in the file's order; their ids may be those of equal bytes once more
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
/// The token that ends documents is the first of these that a vocabulary has.
inline constexpr std::string_view kEndOfTextNames[] = {kEndOfText, "<|end_of_text|>", "</s>", "<eos>", "<EOT>"};
inline constexpr std::uint64_t kMostTokens = 1'000'000;
inline constexpr std::uint64_t kLargestVocabularyFile = 64 << 20;
inline constexpr std::size_t kLongestToken = 4096;  ///< bytes

/// Reads the two files:
///
///   vocab.json   {"token": id, ...}: ids 0 .. n-1, each once. Tokens are written with 256 printable characters that
///                stand for the 256 bytes (33-126, 161-172 and 174-255 for themselves, the others for 256, 257, ...)
///   merges.txt   a line "left right" for each merge, the most important first; a first line "#version..." is left out
///
/// Checked, with file and line in the error: sizes, syntax, UTF-8, unknown characters; no token, id or merge twice;
/// every byte that UTF-8 has is a token; the parts and the result of a merge are tokens, and a part is a byte or made
/// by an earlier merge (so that the order of merges has no contradiction); a merge makes every other token, unless it
/// looks like <pad> or [PAD]; a token that ends documents (kEndOfTextNames) is there and no merge makes it.
///
/// ErrorKind::data for what is wrong in the files, ErrorKind::filesystem for what prevents reading them.
BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file);

/// Sets the texts of the two files from the tokens and merges.
void write_files(BpeVocabulary& vocabulary);

}  // namespace megatron
