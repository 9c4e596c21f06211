// PieceScanner: cuts text into the pieces that byte-pair merges never cross, as GPT-2's pattern does:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Written out by hand: one look at each character (the last space of a run is seen twice), so that no text is slow.
// Defined for any bytes: one that is not part of valid UTF-8 counts as a character that is neither letter nor digit nor
// space. Stateless.
#pragma once

#include "tokenizer/character_classes.h"

namespace megatron {

class PieceScanner {
 public:
  PieceScanner();
  /// The end of the piece that begins at `begin`, which must be before `end`; `end` is the end of the text.
  const char* piece_end(const char* begin, const char* end) const;

 private:
  struct Character {
    CharacterClass of;
    std::uint32_t bytes;
  };
  Character character_at(const char* at, const char* end) const;
  const char* run_end(CharacterClass of, const char* at, const char* end) const;
  const char* spaces_end(const char* begin, const char* end) const;

  std::array<CharacterClass, 128> ascii_;
  const CharacterClasses& classes_;
};

}  // namespace megatron
