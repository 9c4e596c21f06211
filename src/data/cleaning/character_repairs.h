// Characters that the repair of encodings replaces one by one, and the tests that find them: ligatures, widths,
// quotation marks, line ends, control characters, and what form C composes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Stands for what is no character.
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// Letters for a Latin ligature or digraph (ﬁ, ĳ, ŉ, ǆ), and the usual form of a full-width or half-width character,
/// by Unicode's compatibility decompositions; empty for other characters.
std::u32string_view letters_of_ligature(char32_t c);
std::u32string_view usual_width(char32_t c);

inline bool is_single_quote(char32_t c) {
  return c == 0x2BC || (c >= 0x2018 && c <= 0x201B);
}
inline bool is_double_quote(char32_t c) {
  return c >= 0x201C && c <= 0x201F;
}
inline bool is_line_end(char32_t c) {
  return c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}
/// Without an effect on text: ASCII's, deprecated formats, byte order marks, annotations.
inline bool is_removed_control(char32_t c) {
  if (c < 0x20) return c != '\t' && c != '\n' && c != '\f' && c != '\r';
  return c == 0x7F || (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}
/// Whether a character is replaced or removed, but for form C.
bool is_replaced(char32_t c);

/// Characters that stay in form C whatever is next to them.
class ComposedCharacters {
 public:
  static const ComposedCharacters& instance();
  bool has(char32_t c) const { return c < kFirst || (c < kEnd && stays_[c - kFirst]); }

 private:
  static constexpr char32_t kFirst = 0x300, kEnd = 0x20000;
  ComposedCharacters();
  std::vector<bool> stays_;
};

}  // namespace megatron
