// Unicode data that only some tokenizers need: which letters and marks can be part of an upper-case or a lower-case run
// (the split patterns of GPT-4o and Tekken), and what characters are decomposed to by compatibility (NFKC, NFKD). From
// case_tables.cpp, which scripts/tables/make_case_tables.py makes. All tables are ascending.
#pragma once

#include <cstdint>
#include <span>

namespace megatron {

/// upper: \p{Lu} and \p{Lt}; lower: \p{Ll}; both: \p{Lm}, \p{Lo} and \p{M}.
enum class LetterCase : std::uint8_t { none, upper, lower, both };

/// Code points [first, last]; all others are `none`.
struct LetterCaseRange {
  std::uint32_t first, last;
  LetterCase of;
};
std::span<const LetterCaseRange> letter_case_ranges();

/// In full: `parts` of compatibility_parts() from `first` on, not yet in canonical order with what is around them.
struct CompatibilityDecomposition {
  std::uint32_t code_point;
  std::uint16_t first, parts;
};
std::span<const CompatibilityDecomposition> compatibility_decompositions();
std::span<const char16_t> compatibility_parts();

}  // namespace megatron
