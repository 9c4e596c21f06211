#include "tokenizer/character_classes.h"

#include <algorithm>

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

}  // namespace megatron
