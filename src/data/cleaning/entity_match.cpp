#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text/utf8.h"
#include "data/cleaning/ascii.h"
#include "data/cleaning/character_repairs.h"
#include "data/cleaning/html_entities.h"

namespace megatron {

namespace {

constexpr std::size_t kLongestName = kLongestEntity - 2;

/// Windows-1252 for 0x80 to 0x9F, as HTML has it.
constexpr std::uint16_t kWindows[32] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                        0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                        0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                        0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

/// The character of a reference by number, as HTML 5 has it; nothing for numbers that stand for none.
std::string text_of(std::uint32_t number) {
  if (number == 0 || (number >= 0xD800 && number <= 0xDFFF) || number > 0x10FFFF) number = kReplacementCharacter;
  if (number >= 0x80 && number <= 0x9F) number = kWindows[number - 0x80];
  const bool control =
      (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') || number == 0x7F;
  const bool no_character = (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFE) == 0xFFFE;
  std::string text;
  if (!control && !no_character) append_utf8(text, number);
  return text;
}

/// `digits` are those after "&#", without the semicolon.
std::optional<std::string> by_number(std::string_view digits) {
  const bool hex = !digits.empty() && (digits[0] == 'x' || digits[0] == 'X');
  if (hex) digits.remove_prefix(1);
  if (digits.empty()) return {};
  std::uint32_t number = 0;
  for (const char c : digits) {
    const bool letter = hex && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
    if (!is_ascii_digit(c) && !letter) return {};
    const std::uint32_t digit =
        letter ? static_cast<std::uint32_t>((c | 0x20) - 'a' + 10) : static_cast<std::uint32_t>(c - '0');
    number = std::min<std::uint32_t>(number * (hex ? 16 : 10) + digit, 0x110000);
  }
  return text_of(number);
}

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}

/// Entities by their names in capitals; of several, that with the most capitals.
std::unordered_map<std::string, const HtmlEntity*> in_capitals() {
  const auto capitals = [](std::string_view name) {
    return std::count_if(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  };
  std::unordered_map<std::string, const HtmlEntity*> found;
  for (const HtmlEntity& entity : html_entities()) {
    std::string name(entity.name);
    std::transform(name.begin(), name.end(), name.begin(), upper);
    const HtmlEntity*& best = found[name];
    if (best == nullptr || capitals(entity.name) > capitals(best->name)) best = &entity;
  }
  return found;
}

/// Null if there is none.
const HtmlEntity* by_name(std::string_view name) {
  const auto entities = html_entities();
  const auto found =
      std::lower_bound(entities.begin(), entities.end(), name,
                       [](const HtmlEntity& entity, std::string_view wanted) { return entity.name < wanted; });
  if (found != entities.end() && found->name == name) return &*found;
  if (std::any_of(name.begin(), name.end(), [](char c) { return c != upper(c); })) return nullptr;
  static const auto capitals = in_capitals();
  const auto other = capitals.find(std::string(name));
  return other == capitals.end() ? nullptr : other->second;
}

}  // namespace

EntityMatch first_entity(std::string_view text) {
  if (text.size() < 3 || text[0] != '&') return {};
  const std::size_t begin = text[1] == '#' ? 2 : 1;
  std::size_t end = begin;
  while (end < text.size() && end - begin <= kLongestName && (is_ascii_digit(text[end]) || is_ascii_letter(text[end])))
    ++end;
  if (end == begin || end - begin > kLongestName || end == text.size() || text[end] != ';') return {};
  const std::string_view name = text.substr(begin, end - begin);
  if (begin == 2) {
    if (auto by = by_number(name)) return {end + 1, std::move(*by)};
    return {};
  }
  if (const HtmlEntity* const entity = by_name(name)) return {end + 1, std::string(entity->text)};
  return {};
}

}  // namespace megatron
