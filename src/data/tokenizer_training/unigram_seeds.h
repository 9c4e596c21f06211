// Input that UnigramTrainer begins with: the words of a text cut into parts that may be segmented, and the frequent
// substrings of these. Internal to src/data/tokenizer_training.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_training/word_counts.h"

namespace megatron {

/// A part of a word without rare characters, of at most 32 characters, so that its probability is a double.
struct WordPart {
  std::string_view text;
  std::int64_t count = 0;
};

struct SeedPiece {
  std::string text;
  double count = 0;
  bool is_character = false;
};

/// Characters by how often they occur, those of the 99.95 % most frequent occurrences, at most `most`.
std::vector<std::uint32_t> frequent_characters(const WordCounts& words, std::size_t most);

/// Views of the words; `kept` are the characters that parts have.
std::vector<WordPart> word_parts(const WordCounts& words, const std::vector<std::uint32_t>& kept);

/// All characters, and those substrings of at most 16 characters that occur `least_count` times: the 1,000,000 that
/// cover most of the text. In the order of their bytes.
std::vector<SeedPiece> seed_pieces(const std::vector<WordPart>& parts, std::int64_t least_count);

}  // namespace megatron
