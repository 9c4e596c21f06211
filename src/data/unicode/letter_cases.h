// LetterCases: the table of letter_case_ranges() with a byte for every code point. Made once for the process.
#pragma once

#include <cstdint>
#include <memory>

#include "data/unicode/case_tables.h"

namespace megatron {

class LetterCases {
 public:
  static const LetterCases& instance();
  /// `code_point` must be at most 0x10FFFF.
  LetterCase of(std::uint32_t code_point) const { return cases_[code_point]; }

 private:
  LetterCases();
  std::unique_ptr<LetterCase[]> cases_;
};

}  // namespace megatron
