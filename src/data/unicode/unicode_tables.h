// Unicode data beyond the character classes of the split patterns: combining classes, decompositions and grapheme
// clusters. From unicode_tables.cpp, which scripts/tables/make_unicode_tables.py makes. All tables are ascending; a
// code point that is in none of a table's rows has the default.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

namespace megatron {

/// [first, last]
struct CodePointRange {
  std::uint32_t first, last;
};
/// Code points of one canonical combining class; the default is 0.
struct CombiningRange {
  std::uint32_t first, last;
  std::uint8_t of;
};
/// Code points [first, last], each decomposed to this many `parts` of its table.
struct DecompositionRun {
  std::uint32_t first, last;
  std::uint8_t parts;
};
/// `parts` has those of the first code point of the first run, then of the next one, and so on. kFollowing + n stands
/// for n parts, each one above the part before it.
inline constexpr char32_t kFollowing = 1u << 31;
struct DecompositionTable {
  std::span<const DecompositionRun> runs;
  std::span<const char32_t> parts;
};

inline bool contains(std::span<const CodePointRange> ranges, std::uint32_t code_point) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](std::uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

/// Digits of the pre-tokenizer Digits, which follows a newer Unicode, that the split patterns do not count as \p{N}.
std::span<const CodePointRange> late_digit_ranges();
/// Grapheme clusters: characters that join what is before them and are no marks, or the reverse; that join what is
/// after them; and (below U+10000) that no mark joins.
std::span<const CodePointRange> grapheme_extender_exceptions();
std::span<const CodePointRange> grapheme_prefixes();
std::span<const CodePointRange> grapheme_controls();
std::span<const CombiningRange> combining_ranges();
/// One level: one part or two. NFC composes two again, but for the exclusions.
DecompositionTable canonical_decompositions();
std::span<const CodePointRange> composition_exclusions();
/// In full (NFKC, NFKD), not yet in canonical order with the characters around them.
DecompositionTable compatibility_decompositions();

}  // namespace megatron
