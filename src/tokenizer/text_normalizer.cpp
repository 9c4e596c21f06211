#include "tokenizer/text_normalizer.h"

#include <algorithm>

#include "characters/character_classes.h"
#include "characters/normalization.h"
#include "characters/unicode_tables.h"
#include "text/utf8.h"

namespace megatron {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kWholeCluster = 6;  ///< clusters of fewer bytes are looked up as a whole

bool contains(std::span<const CodePointRange> ranges, std::uint32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](std::uint32_t value, const CodePointRange& r) { return value < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

bool is_jamo(std::uint32_t c) {
  return c - 0x1100 < 0x100 || c - 0xA960 < 0x20 || c - 0xAC00 < 0x2BA4 || c - 0xD7B0 < 0x50;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint c = first_code_point(text.substr(0, 4));
    if (!has_white_space_property(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!has_white_space_property(first_code_point(text.substr(at)).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

void replace_spaces(std::string_view text, const std::string& content, std::string& made) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end - at >= 2) {
      made += content;
      at = end;
    } else {
      made += text[at++];
    }
  }
}

}  // namespace

bool has_white_space_property(std::uint32_t code_point) {
  return CharacterClasses::instance().of(code_point) == CharacterClass::space;
}

std::size_t cluster_bytes(std::string_view text) {
  const CodePoint first = first_code_point(text.substr(0, 4));
  if (first.value == '\r') return text.starts_with("\r\n") ? 2 : 1;
  std::size_t bytes = first.bytes;
  if (contains(grapheme_controls(), first.value)) return bytes;
  bool joins = contains(grapheme_prefixes(), first.value), jamo = is_jamo(first.value);
  while (bytes < text.size() && bytes < kWholeCluster) {
    const CodePoint next = first_code_point(text.substr(bytes, 4));
    const bool extends = contains(grapheme_extenders(), next.value), next_jamo = is_jamo(next.value);
    if (!extends && !(jamo && next_jamo) && !(joins && !contains(grapheme_controls(), next.value))) break;
    joins = !extends && contains(grapheme_prefixes(), next.value);
    jamo = next_jamo;
    bytes += next.bytes;
  }
  return bytes;
}

std::string_view TextNormalizer::normalized(std::string_view text) {
  text = valid(text);
  std::size_t next = 0;
  for (const NormalizerStep& step : steps_) {
    std::string& made = buffers_[next];
    switch (step.kind) {
      case NormalizerStep::Kind::strip: text = stripped(text, step.left, step.right); continue;
      case NormalizerStep::Kind::nfc: text = normalized_nfc(text, made); break;
      case NormalizerStep::Kind::character_map: text = mapped(step.map, text, made); break;
      case NormalizerStep::Kind::replace_spaces:
        made.clear();
        replace_spaces(text, step.content, made);
        text = made;
    }
    if (text.data() == made.data()) next = 1 - next;  // else the text is still where it was
  }
  return text;
}

std::string_view TextNormalizer::valid(std::string_view text) {
  if (first_invalid_utf8(text) == text.size()) return text;
  std::string& made = buffers_[2];
  made.clear();
  while (!text.empty()) {
    const std::size_t end = first_invalid_utf8(text);
    made.append(text.substr(0, end));
    if (end == text.size()) break;
    made.append(kReplacement);
    text.remove_prefix(end + 1);
  }
  return made;
}

/// A cluster of fewer than 6 bytes becomes what the shortest string becomes that it begins with, and what is after that
/// is lost; else each character is looked up alone.
std::string_view TextNormalizer::mapped(const CharacterMap& map, std::string_view text, std::string& made) const {
  made.clear();
  while (!text.empty()) {
    std::size_t bytes = 1;
    const auto ascii = [&](std::size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
    if (!ascii(0) || (text.size() > 1 && (!ascii(1) || text[0] == '\r'))) bytes = cluster_bytes(text);
    std::string_view cluster = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (bytes < kWholeCluster) {
      if (const auto found = map.shortest(cluster)) {
        made += *found;
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, first_code_point(cluster.substr(0, 4)).bytes);
      made += map.shortest(character).value_or(character);
      cluster.remove_prefix(character.size());
    }
  }
  return made;
}

}  // namespace megatron
