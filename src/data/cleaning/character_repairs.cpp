#include "data/cleaning/character_repairs.h"

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "base/text/utf8.h"
#include "data/unicode/normalization.h"
#include "data/unicode/unicode_tables.h"

namespace megatron {

namespace {

constexpr CodePointRange kLigatures[] = {
    {0x132, 0x133}, {0x149, 0x149}, {0x1C4, 0x1CC}, {0x1F1, 0x1F3}, {0xFB00, 0xFB06}};
/// The ideographic space, and the block of half-width and full-width forms without the macron, which would be a space
/// and a mark.
constexpr CodePointRange kWidths[] = {{0x3000, 0x3000}, {0xFF01, 0xFFE2}, {0xFFE4, 0xFFEE}};

/// Compatibility forms of the characters of some ranges that have one.
class CompatibleForms {
 public:
  explicit CompatibleForms(std::span<const CodePointRange> ranges) {
    std::string text, buffer;
    for (const CodePointRange& range : ranges) {
      for (std::uint32_t c = range.first; c <= range.last; ++c) {
        text.clear();
        append_utf8(text, c);
        std::string_view form = normalized_text(text, NormalForm::kc, buffer);
        if (form == text) continue;
        for (std::u32string& out = forms_[c]; !form.empty();) {
          const CodePoint part = first_code_point(form);
          out.push_back(part.value);
          form.remove_prefix(part.bytes);
        }
      }
    }
  }
  std::u32string_view of(char32_t c) const {
    const auto found = forms_.find(c);
    return found == forms_.end() ? std::u32string_view() : found->second;
  }

 private:
  std::unordered_map<char32_t, std::u32string> forms_;
};

}  // namespace

std::u32string_view letters_of_ligature(char32_t c) {
  if (c < 0x132 || c > 0xFB06 || (c > 0x1F3 && c < 0xFB00) || !contains(kLigatures, c)) return {};
  static const CompatibleForms forms(kLigatures);
  return forms.of(c);
}

std::u32string_view usual_width(char32_t c) {
  if (c != 0x3000 && (c < 0xFF01 || c > 0xFFEE)) return {};
  static const CompatibleForms forms(kWidths);
  return forms.of(c);
}

bool is_replaced(char32_t c) {
  if (c < 0x80) return (c < 0x20 && c != '\t' && c != '\n' && c != '\f') || c == 0x7F;
  if (c < 0xA0) return true;
  if (c > 0x3000 && c < 0xFB00) return false;
  if (is_single_quote(c) || is_double_quote(c) || is_line_end(c) || is_removed_control(c)) return true;
  return !letters_of_ligature(c).empty() || !usual_width(c).empty();
}

const ComposedCharacters& ComposedCharacters::instance() {
  static const ComposedCharacters characters;
  return characters;
}

ComposedCharacters::ComposedCharacters() : stays_(kEnd - kFirst, true) {
  std::vector<std::uint32_t> parts;
  std::string text, buffer;
  for (char32_t c = 0; c < kEnd; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    parts.clear();
    append_decomposition(c, parts);
    const bool decomposed = parts.size() > 1 || parts[0] != c;
    if (decomposed && c >= kFirst) {
      text.clear();
      append_utf8(text, c);
      if (normalized_nfc(text, buffer) != text) stays_[c - kFirst] = false;
    }
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i] >= kFirst && parts[i] < kEnd) stays_[parts[i] - kFirst] = false;  // composes with what is before it
    }
    if (c >= kFirst && combining_class(c) != 0) stays_[c - kFirst] = false;
  }
}

}  // namespace megatron
