#include "data/unicode/letter_cases.h"

#include <algorithm>

namespace megatron {

LetterCases::LetterCases() : cases_(std::make_unique<LetterCase[]>(0x110000)) {
  for (const LetterCaseRange& range : letter_case_ranges()) {
    std::fill(&cases_[range.first], &cases_[range.last] + 1, range.of);
  }
}

const LetterCases& LetterCases::instance() {
  static const LetterCases cases;
  return cases;
}

}  // namespace megatron
