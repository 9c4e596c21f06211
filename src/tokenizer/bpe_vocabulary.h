// BpeVocabulary: a byte-level BPE as GPT-2 publishes it, read from its two files and checked before anything uses it.
//
//   vocab.json   {"token": id, ...}: ids 0 .. n-1, each once. Tokens are written with 256 printable characters that
//   stand
//                for the 256 bytes (33-126, 161-172 and 174-255 for themselves, the others for 256, 257, ... in order)
//   merges.txt   a line "left right" for each merge, the most important first; a first line "#version..." is left out
//
// Checked, with file and line in the error: sizes, syntax, UTF-8, unknown characters; no token, id or merge twice;
// every byte is a token; the parts and the result of a merge are tokens, and a part is a byte or made by an earlier
// merge (so that the order of merges has no contradiction); a merge makes every other token, unless it looks like <pad>
// or [PAD];
// <|endoftext|> is there and no merge makes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

struct BpeMerge {
  std::int32_t left = 0, right = 0, result = 0;
};

struct BpeVocabulary {
  std::vector<std::string> tokens;     ///< by id, as bytes
  std::vector<BpeMerge> merges;        ///< by rank
  std::int32_t end_of_text = 0;        ///< id of <|endoftext|>
  std::string vocab_text, merge_text;  ///< the files as they were
  // Of tokenizer.json (tokenizer_json.h):
  std::string tokenizer_text;     ///< the file as it was, instead of those two
  bool add_prefix_space = false;  ///< a text that does not begin with a space is encoded as if it did
  /// Tokens that are taken out of a text before it is cut into pieces, the longest of those that begin first. Twice
  /// over: [0] first, then [1] in what is left.
  std::vector<std::pair<std::string, std::int32_t>> found_in_text[2];
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
inline constexpr std::uint64_t kMostTokens = 1'000'000;
inline constexpr std::uint64_t kLargestVocabularyFile = 64 << 20;
inline constexpr std::size_t kLongestToken = 4096;  ///< bytes

/// ErrorKind::data for what is wrong in the files, ErrorKind::filesystem for what prevents reading them.
BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file);

/// Sets the texts of the two files from the tokens and merges.
void write_files(BpeVocabulary& vocabulary);

}  // namespace megatron
