#include "data/unicode/character_classes.h"

#include <algorithm>

#include "data/unicode/unicode_tables.h"

namespace megatron {

static_assert(sizeof(CharacterKind) == 1);

CharacterClasses::CharacterClasses() : kinds_(std::make_unique<CharacterKind[]>(0x110000)) {
  for (const CharacterRange& range : character_ranges()) {
    std::fill(&kinds_[range.first], &kinds_[range.last] + 1, range.of);
    if (!range.of.in_turn) continue;
    for (std::uint32_t c = range.first + 1; c <= range.last; c += 2) kinds_[c].letter_case = LetterCase::lower;
  }
}

const CharacterClasses& CharacterClasses::instance() {
  static const CharacterClasses classes;
  return classes;
}

const CharacterClasses& CharacterClasses::with_late_digits() {
  static const CharacterClasses classes = [] {
    CharacterClasses made;
    for (const CodePointRange& range : late_digit_ranges()) {
      for (std::uint32_t c = range.first; c <= range.last; ++c) made.kinds_[c].of = CharacterClass::digit;
    }
    return made;
  }();
  return classes;
}

bool CharacterClasses::extends_cluster(std::uint32_t code_point) const {
  const bool is_mark = of(code_point) == CharacterClass::other && case_of(code_point) == LetterCase::both;
  return is_mark != contains(grapheme_extender_exceptions(), code_point);
}

}  // namespace megatron
