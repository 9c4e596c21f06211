#include "data/unicode/character_classes.h"

#include <algorithm>

#include "data/unicode/unicode_tables.h"

namespace megatron {

CharacterClasses::CharacterClasses() : classes_(std::make_unique<CharacterClass[]>(0x110000)) {
  for (const CharacterRange& range : character_ranges()) {
    std::fill(&classes_[range.first], &classes_[range.last] + 1, range.of);
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
      std::fill(&made.classes_[range.first], &made.classes_[range.last] + 1, CharacterClass::digit);
    }
    return made;
  }();
  return classes;
}

}  // namespace megatron
