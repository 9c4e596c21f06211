#include "data/cleaning/neighbours.h"

#include <array>
#include <cstdint>
#include <memory>

#include "data/cleaning/mojibake_tables.h"

namespace megatron {

namespace {

/// Part of a character in writing.
enum class Kind : std::uint8_t {
  unknown,
  small,
  capital,
  ordinal,  ///< ª, º: letters that follow numbers
  quote,    ///< that closes in some language, and apostrophes
  opener,   ///< only opens
  joint,    ///< dashes, spaces, soft hyphens, middle dots: between words or their parts
  sign,     ///< ends words: … ™ ® ° † ‡
  formula,  ///< mathematical signs and superscripts
  number,   ///< fractions
  currency,
  box,
  symbol,
  control,
};

struct Facts {
  Kind kind = Kind::unknown;
  Script script = Script::common;

  bool is_letter() const { return kind == Kind::small || kind == Kind::capital; }
};

bool is_in(char32_t c, std::u32string_view characters) {
  return characters.find(c) != characters.npos;
}

Kind kind_of(char32_t c, Category category) {
  using enum Category;
  if (is_in(c, U"´΄")) return Kind::quote;  // typed as apostrophes
  if (is_in(c, U"·•")) return Kind::joint;
  if (is_in(c, U"…™®°†‡")) return Kind::sign;
  if (is_in(c, U"²³¹ⁿ")) return Kind::formula;
  if (c == U'ƒ') return Kind::currency;  // the florin in code pages
  if (c >= 0x2500 && c < 0x25A0) return Kind::box;
  switch (category) {
    case kLl: return Kind::small;
    case kLu: return Kind::capital;
    case kLo: return Kind::ordinal;
    case kPi:
    case kPf: return Kind::quote;
    case kPs: return Kind::opener;
    case kPo: return is_in(c, U"¡¿") ? Kind::opener : Kind::symbol;
    case kPd:
    case kZs:
    case kCf: return Kind::joint;
    case kSm: return Kind::formula;
    case kNo: return Kind::number;
    case kSc: return Kind::currency;
    case kCc: return Kind::control;
    case kCo:
    case kLm:
    case kSk:
    case kSo: return Kind::symbol;
  }
  return Kind::symbol;
}

class FactTable {
 public:
  static const FactTable& instance() {
    static const FactTable table;
    return table;
  }
  Facts of(char32_t c) const {
    if (c >= 0x10000) return {};
    const auto& page = pages_[c >> 8];
    return page == nullptr ? Facts{} : (*page)[c & 0xFF];
  }

 private:
  FactTable() {
    for (char32_t c = 'a'; c <= 'z'; ++c) {
      add(c, {Kind::small, Script::latin});
      add(c - 32, {Kind::capital, Script::latin});
    }
    add('\'', {Kind::quote});
    add('"', {Kind::quote});
    for (const KnownCharacter& known : known_characters())
      add(known.c, {kind_of(known.c, known.category), known.script});
  }
  void add(char32_t c, Facts facts) {
    auto& page = pages_[c >> 8];
    if (page == nullptr) page = std::make_unique<std::array<Facts, 256>>();
    (*page)[c & 0xFF] = facts;
  }
  std::array<std::unique_ptr<std::array<Facts, 256>>, 256> pages_;
};

/// Whether b may stand right after a. Unknown characters may.
bool follows(Facts a, Facts b) {
  using enum Kind;
  if (a.kind == unknown || b.kind == unknown) return true;
  if (a.kind == control || b.kind == control) return false;
  switch (a.kind) {
    case small:
    case capital:
      if (b.is_letter()) return a.script == b.script && !(a.kind == small && b.kind == capital);
      return b.kind == quote || b.kind == joint || b.kind == sign || b.kind == formula;
    case quote:
    case joint:
    case opener: return b.kind != box;
    case ordinal: return b.kind != box && b.kind != currency;
    case sign:
    case number: return b.kind == quote || b.kind == joint || b.kind == sign || b.kind == formula;
    case formula:
      return b.kind == joint || b.kind == formula || b.kind == number || b.kind == currency ||
             (b.is_letter() && b.script != Script::latin);
    case currency: return b.kind == quote || b.kind == joint;
    case box: return b.kind == box;
    default: return b.kind == quote || b.kind == joint;
  }
}

/// Whether b, between two letters, is a part of a word: an apostrophe, a hyphen.
bool is_in_words(char32_t c, Facts b) {
  return b.is_letter() || b.kind == Kind::joint || b.kind == Kind::unknown || is_in(c, U"’‘'´΄…");
}

}  // namespace

bool is_unlikely(std::u32string_view line, std::size_t begin, std::size_t end) {
  const FactTable& table = FactTable::instance();
  const auto facts_at = [&](std::size_t at) { return at < line.size() ? table.of(line[at]) : Facts{}; };
  Facts before = begin > 0 ? facts_at(begin - 1) : Facts{}, at = facts_at(begin);
  const Facts second = facts_at(begin + 1);
  // The lead: Greek letters are symbols after Latin ones (kΩ), so scripts may differ there.
  if (before.is_letter() && (!at.is_letter() || at.script == before.script) && !follows(before, at)) return true;
  if (is_in(line[begin], U"ÃÂ") && !before.is_letter() && line[begin + 1] != ' ' &&
      !(second.kind == Kind::quote && (before.kind == Kind::quote || before.kind == Kind::opener))) {
    return true;
  }
  const bool word_goes_on = before.is_letter() && facts_at(end).is_letter();
  if (word_goes_on && at.kind == Kind::formula) return true;
  for (std::size_t i = begin; i < end; ++i) {
    const Facts next = facts_at(i + 1);
    const bool inside = i + 1 < end;
    if (inside && !follows(at, next)) return true;
    if (!inside && at.kind == Kind::small && next.kind == Kind::capital && at.script == next.script) return true;
    const bool may_be_there = is_in_words(line[i], at) || (i == begin && at.kind == Kind::formula);  // x√π
    if (before.is_letter() && next.is_letter() && !may_be_there) return true;
    before = at;
    at = next;
  }
  return false;
}

}  // namespace megatron
