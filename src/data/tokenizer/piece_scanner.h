// PieceScanner: cuts text into the pieces that byte-pair merges never cross, by the published split patterns.
//
// Written out by hand: one look at each character (the last space of a run is seen twice), so that no text is slow.
// Defined for any bytes: one that is not part of valid UTF-8 counts as a character that is neither letter nor digit nor
// space. Stateless.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "data/unicode/character_classes.h"

namespace megatron {

static_assert(std::endian::native == std::endian::little, "ascii_letters and the piece cache read bytes as numbers");

/// How many of the eight bytes at `at`, from the first on, are ASCII letters.
inline std::ptrdiff_t ascii_letters(const char* at) {
  constexpr std::uint64_t kEach = 0x0101010101010101u, kHigh = 0x80 * kEach;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof(bytes));
  // Each byte's high bit comes to say whether its lower seven bits, in lower case, are from 'a' on, and beyond 'z'.
  const std::uint64_t lower = (bytes & ~kHigh) | 0x20 * kEach;
  const std::uint64_t from_a = lower + (0x80 - 'a') * kEach, beyond_z = lower + (0x80 - 'z' - 1) * kEach;
  const std::uint64_t letters = from_a & ~beyond_z & ~bytes & kHigh;
  return std::countr_zero(~letters & kHigh) / 8;
}

/// Published patterns:
///
///   gpt2           's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///   single_digits  every digit is a piece; gpt2 for the text between digits (StarCoder)
///   cl100k         (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
///                  |\s*[\r\n]+|\s+(?!\S)|\s+                                           (GPT-4, Llama 3)
///   qwen2          cl100k with \p{N} instead of \p{N}{1,3}
///   o200k          words end where an upper-case letter follows a lower-case one, and a contraction ends them
///                  (tokenizer_pipeline.cpp has it all; GPT-4o)
///   tekken         o200k without contractions, and \p{N} instead of \p{N}{1,3} (Mistral)
enum class SplitPattern : std::uint8_t { gpt2, single_digits, cl100k, qwen2, o200k, tekken };

class PieceScanner {
 public:
  explicit PieceScanner(SplitPattern pattern = SplitPattern::gpt2);
  /// The end of the piece that begins at `begin`, which must be before `end`; `end` is the end of the text.
  const char* piece_end(const char* begin, const char* end) const {
    // Nearly always, and the same by every pattern that does not tell cases apart: a space and a few ASCII letters,
    // with more text after them.
    const char* at = begin + (*begin == ' ' ? 1 : 0);
    if (end - at >= 8 && !by_case_) {
      const std::ptrdiff_t letters = ascii_letters(at);
      if (letters > 0 && letters < 8 && static_cast<signed char>(at[letters]) >= 0) return at + letters;
    }
    return any_piece_end(begin, end);
  }

 private:
  const char* any_piece_end(const char* begin, const char* end) const;
  const char* gpt2_piece_end(const char* begin, const char* end) const;
  const char* single_digits_piece_end(const char* begin, const char* end) const;
  const char* cl100k_piece_end(const char* begin, const char* end, int most_digits) const;
  const char* o200k_piece_end(const char* begin, const char* end, bool contractions, int most_digits) const;
  const char* cased_word_end(const char* begin, const char* end) const;
  const char* digits_end(const char* at, const char* end, int most_digits) const;
  const char* signs_end(const char* begin, const char* end, std::string_view after) const;

  struct Character {
    CharacterClass of;
    std::uint32_t bytes;
  };
  Character character_at(const char* at, const char* end) const;
  const char* run_end(CharacterClass of, const char* at, const char* end) const;
  struct Spaces {
    const char* end;           ///< where the run ends
    const char* last;          ///< where its last character begins
    const char* newlines_end;  ///< after its last CR or LF; nullptr if it has none
  };
  Spaces spaces_at(const char* begin, const char* end) const;
  static const char* spaces_end(const Spaces& spaces, const char* begin, const char* end);

  SplitPattern pattern_;
  bool by_case_;
  std::array<CharacterClass, 128> ascii_;
  const CharacterClasses& classes_;
};

}  // namespace megatron
