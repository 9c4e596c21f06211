#include "data/tokenizer/part_borders.h"

#include <algorithm>

#include "base/text/utf8.h"
#include "data/unicode/character_classes.h"
#include "data/unicode/unicode_tables.h"

namespace megatron {

PartBorders::PartBorders(std::span<const TextPart> parts) : parts_(parts) {
  std::size_t at = 0;
  for (std::size_t part = 1; part < parts.size(); ++part) {
    at += parts[part - 1].text.size();
    borders_.push_back({at, static_cast<std::uint32_t>(part)});
  }
}

PartBorders PartBorders::within(std::size_t begin, std::size_t size) const {
  PartBorders inside(special_);
  inside.parts_ = parts_;
  inside.first_ = part_at(begin);
  for (auto border = first_after(begin); border != borders_.end() && border->at < begin + size; ++border) {
    inside.borders_.push_back({border->at - begin, border->part});
  }
  return inside;
}

std::vector<PartBorders::Border>::const_iterator PartBorders::first_after(std::size_t byte) const {
  return std::upper_bound(borders_.begin(), borders_.end(), byte,
                          [](std::size_t place, const Border& border) { return place < border.at; });
}

std::uint32_t PartBorders::found_part(std::size_t byte) const {
  const auto next = first_after(byte);
  return next == borders_.begin() ? first_ : std::prev(next)->part;
}

bool PartBorders::special(std::size_t begin, std::size_t end) const {
  if (parts_.empty()) return special_ == SpecialTokens::tokens;
  const auto parts = parts_.subspan(part_at(begin), part_at(end - 1) - part_at(begin) + 1);
  return std::all_of(parts.begin(), parts.end(),
                     [](const TextPart& part) { return part.text.empty() || part.special == SpecialTokens::tokens; });
}

namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Jamo, syllables, and what a normal form makes jamo of.
bool is_hangul(std::uint32_t c) {
  return c - 0x1100 < 0x100 || c - 0x3130 < 0x60 || c - 0x3260 < 0x20 || c - 0xA960 < 0x20 || c - 0xAC00 < 0x2C00 ||
         c - 0xFFA0 < 0x40;
}

/// Whether no normalizer joins the character that begins at a place with what is in front of it.
bool begins_alone(std::string_view text, std::size_t at) {
  const CodePoint c = first_code_point(text.substr(at, 4));
  if (c.value < 0x80) return c.bytes == 1 && c.value > ' ' && c.value <= '~';
  const bool joins = CharacterClasses::instance().extends_cluster(c.value) || contains(grapheme_controls(), c.value) ||
                     is_hangul(c.value) || CharacterClasses::instance().of(c.value) == CharacterClass::space;
  if (c.bytes == 0 || joins || at == 0) return c.bytes > 0 && !joins;
  std::size_t before = at - 1;
  while (before > 0 && is_continuation(text[before])) --before;
  return !contains(grapheme_prefixes(), first_code_point(text.substr(before, 4)).value);
}

}  // namespace

// Among marks that have no end, a border may lie a few characters off, so that this takes no square of their number.
std::size_t PartBorders::begin_before(std::string_view text, std::size_t from, std::size_t border) {
  constexpr std::size_t kFarthest = 4096;
  for (std::size_t at = border; at > from;) {
    --at;
    if (is_continuation(text[at])) continue;
    if (begins_alone(text, at) || border - at >= kFarthest) return at;
  }
  return from;
}

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  TokenOutput output{ids, nullptr};
  run(text, PartBorders(special_), output);
}

void Encoder::encode_parts(std::span<const TextPart> parts, std::vector<std::int32_t>& ids,
                           std::vector<std::uint32_t>& part_of) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  ids.clear();
  part_of.clear();
  TokenOutput output{ids, &part_of};
  run(text, PartBorders(parts), output);
}

}  // namespace megatron
