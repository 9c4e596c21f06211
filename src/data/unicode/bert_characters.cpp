#include "data/unicode/bert_characters.h"

#include <algorithm>

namespace megatron {

BertCharacters::BertCharacters() : bits_(std::make_unique<std::uint8_t[]>(0x110000)) {
  for (const BertRange& range : bert_ranges()) std::fill(&bits_[range.first], &bits_[range.last] + 1, range.bits);
  for (const LowerCaseRange& range : lower_case_ranges()) {
    for (std::uint32_t c = range.first; c <= range.last; c += range.step) {
      lower_.emplace(c, static_cast<std::uint32_t>(static_cast<std::int32_t>(c) + range.difference));
    }
  }
}

const BertCharacters& BertCharacters::instance() {
  static const BertCharacters characters;
  return characters;
}

}  // namespace megatron
