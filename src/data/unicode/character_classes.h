// Character classes of the GPT-2 pattern: letters (\p{L}), digits (\p{N}), spaces (\s), and all others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace megatron {

enum class CharacterClass : std::uint8_t { other, letter, digit, space };

/// Code points [first, last] of one class.
struct CharacterRange {
  std::uint32_t first, last;
  CharacterClass of;
};

/// Everything that is not `other`, ascending. From character_ranges.cpp, which scripts/tables/make_character_classes.py
/// makes.
std::span<const CharacterRange> character_ranges();

/// The ranges as a table with a byte for every code point. Made once for the process.
class CharacterClasses {
 public:
  static const CharacterClasses& instance();
  /// With the digits of late_digit_ranges().
  static const CharacterClasses& with_late_digits();
  /// `code_point` must be at most 0x10FFFF.
  CharacterClass of(std::uint32_t code_point) const { return classes_[code_point]; }

 private:
  CharacterClasses();
  std::unique_ptr<CharacterClass[]> classes_;
};

}  // namespace megatron
