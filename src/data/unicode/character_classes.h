// CharacterClasses: what split patterns and added tokens ask of a character: letter (\p{L}), digit (\p{N}) or space
// (\s), the case of letters and marks, and whether words consist of it (\w).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace megatron {

enum class CharacterClass : std::uint8_t { other, letter, digit, space };

/// upper: \p{Lu} and \p{Lt}; lower: \p{Ll}; both: \p{Lm}, \p{Lo} and \p{M}.
enum class LetterCase : std::uint8_t { none, upper, lower, both };

struct CharacterKind {
  CharacterClass of : 2 = CharacterClass::other;
  LetterCase letter_case : 2 = LetterCase::none;
  bool word : 1 = false;
  bool in_turn : 1 = false;  ///< in a range: its characters are upper and lower case by turns
};

/// Code points [first, last] of one kind.
struct CharacterRange {
  std::uint32_t first, last;
  CharacterKind of;
};

/// All characters that have a property, ascending. From character_ranges.cpp, which
/// scripts/tables/make_character_classes.py makes.
std::span<const CharacterRange> character_ranges();

/// The ranges as a table with a byte for every code point. Made once for the process. Code points are at most 0x10FFFF.
class CharacterClasses {
 public:
  static const CharacterClasses& instance();
  /// With the digits of late_digit_ranges().
  static const CharacterClasses& with_late_digits();

  CharacterClass of(std::uint32_t code_point) const { return kinds_[code_point].of; }
  LetterCase case_of(std::uint32_t code_point) const { return kinds_[code_point].letter_case; }
  bool is_word(std::uint32_t code_point) const { return kinds_[code_point].word; }
  /// Whether the character joins the grapheme cluster before it: nearly all marks do, and few others.
  bool extends_cluster(std::uint32_t code_point) const;

 private:
  CharacterClasses();
  std::unique_ptr<CharacterKind[]> kinds_;
};

}  // namespace megatron
