#include "data/unicode/normalization.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/text/utf8.h"
#include "data/unicode/unicode_tables.h"

namespace megatron {

namespace {

// Hangul syllables are composed by arithmetic: (leading * kVowels + vowel) * kTrailing + trailing.
constexpr std::uint32_t kSyllables = 0xAC00, kLeadingJamo = 0x1100, kVowelJamo = 0x1161, kTrailingJamo = 0x11A7;
constexpr std::uint32_t kLeading = 19, kVowels = 21, kTrailing = 28, kSyllableCount = kLeading * kVowels * kTrailing;

constexpr std::uint32_t kFirstDecomposed = 0xC0;
constexpr std::uint32_t kFirstMark = 0x300;  ///< no character before this composes with the one in front of it
/// By form: the least first byte of a character that may change, or that another may change with it.
constexpr unsigned char kFirstByte[] = {0xCC, 0xC3, 0xC2, 0xC2};
constexpr std::uint32_t kCodePoints = 0x110000;  ///< in Unicode

/// A table of decompositions with all parts, and where those of each run begin.
class Decompositions {
 public:
  explicit Decompositions(const DecompositionTable& table) : runs_(table.runs), pages_(kCodePoints >> 8) {
    for (const char32_t part : table.parts) {
      if (part < kFollowing) parts_.push_back(part);
      for (char32_t left = part; left > kFollowing; --left) parts_.push_back(parts_.back() + 1);
    }
    std::size_t parts = 0;
    for (const auto& [first, last, each] : runs_) {
      first_part_.push_back(parts);
      parts += std::size_t{last - first + 1} * each;
      for (std::uint32_t page = first >> 8; page <= last >> 8; ++page) pages_[page] = true;
    }
  }

  /// Whether none of the 256 code points around this one is decomposed.
  bool is_inert(std::uint32_t c) const { return !pages_[c >> 8]; }
  /// Parts of a character; empty if it is not decomposed.
  std::span<const char32_t> of(std::uint32_t c) const {
    if (is_inert(c)) return {};
    const auto after = std::upper_bound(runs_.begin(), runs_.end(), c,
                                        [](std::uint32_t code, const auto& run) { return code < run.first; });
    if (after == runs_.begin() || c > std::prev(after)->last) return {};
    const DecompositionRun& run = *std::prev(after);
    const std::size_t first = first_part_[static_cast<std::size_t>(&run - runs_.data())];
    return std::span(parts_).subspan(first + std::size_t{c - run.first} * run.parts, run.parts);
  }

 private:
  std::span<const DecompositionRun> runs_;
  std::vector<std::size_t> first_part_;
  std::vector<char32_t> parts_;
  std::vector<bool> pages_;
};

const Decompositions& compatibility_tables() {
  static const Decompositions tables(compatibility_decompositions());
  return tables;
}

class CanonicalTables {
 public:
  static const CanonicalTables& instance() {
    static const CanonicalTables tables;
    return tables;
  }

  /// Whether a character neither changes in form C nor has a part in what happens to others.
  bool is_inert(std::uint32_t c) const { return !pages_[c >> 8]; }
  std::uint8_t class_of(std::uint32_t c) const { return is_inert(c) ? 0 : classes_[c]; }

  void decompose(std::uint32_t c, std::vector<std::uint32_t>& out) const {
    if (c < kFirstDecomposed) return out.push_back(c);
    if (c - kSyllables < kSyllableCount) {
      const std::uint32_t syllable = c - kSyllables, trailing = syllable % kTrailing;
      out.push_back(kLeadingJamo + syllable / (kVowels * kTrailing));
      out.push_back(kVowelJamo + syllable / kTrailing % kVowels);
      if (trailing != 0) out.push_back(kTrailingJamo + trailing);
      return;
    }
    const std::span<const char32_t> parts = decompositions_.of(c);
    if (parts.empty()) return out.push_back(c);
    decompose(parts[0], out);
    if (parts.size() > 1) out.push_back(parts[1]);
  }

  /// The character that two neighbours compose to; 0 if they stay two.
  std::uint32_t composed(std::uint32_t first, std::uint32_t second) const {
    if (first - kLeadingJamo < kLeading && second - kVowelJamo < kVowels) {
      return kSyllables + ((first - kLeadingJamo) * kVowels + second - kVowelJamo) * kTrailing;
    }
    const bool syllable_without_trailing = first - kSyllables < kSyllableCount && (first - kSyllables) % kTrailing == 0;
    if (syllable_without_trailing && second - kTrailingJamo - 1 < kTrailing - 1) return first + second - kTrailingJamo;
    const auto found = pairs_.find(std::uint64_t{first} << 32 | second);
    return found == pairs_.end() ? 0 : found->second;
  }

 private:
  CanonicalTables() : classes_(std::make_unique<std::uint8_t[]>(kCodePoints)), pages_(kCodePoints >> 8) {
    const auto mark = [&](std::uint32_t first, std::uint32_t last) {
      for (std::uint32_t page = first >> 8; page <= last >> 8; ++page) pages_[page] = true;
    };
    for (const CombiningRange& range : combining_ranges()) {
      std::fill(&classes_[range.first], &classes_[range.last] + 1, range.of);
      mark(range.first, range.last);
    }
    for (const DecompositionRun& run : canonical_decompositions().runs) {
      for (std::uint32_t c = run.first; c <= run.last; ++c) {
        const std::span<const char32_t> parts = decompositions_.of(c);
        mark(c, c);
        for (const char32_t part : parts) mark(part, part);
        if (parts.size() < 2 || contains(composition_exclusions(), c)) continue;
        pairs_.emplace(std::uint64_t{parts[0]} << 32 | parts[1], c);
      }
    }
    mark(kLeadingJamo, kTrailingJamo + kTrailing);
    mark(kSyllables, kSyllables + kSyllableCount - 1);
  }

  const Decompositions decompositions_{canonical_decompositions()};
  std::unique_ptr<std::uint8_t[]> classes_;
  std::vector<bool> pages_;  // 256 code points each: whether one of them is not inert
  std::unordered_map<std::uint64_t, std::uint32_t> pairs_;
};

/// Puts decomposed characters in canonical order, in place.
void put_in_order(const CanonicalTables& tables, std::vector<std::uint32_t>& characters) {
  const auto by_class = [&](std::uint32_t a, std::uint32_t b) { return tables.class_of(a) < tables.class_of(b); };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto is_starter = [&](std::uint32_t c) { return tables.class_of(c) == 0; };
    const auto end = std::find_if(at, characters.end(), is_starter);
    std::stable_sort(at, end, by_class);
    at = std::find_if_not(end, characters.end(), is_starter);
  }
}

/// Composes characters that are in order, in place.
void compose(const CanonicalTables& tables, std::vector<std::uint32_t>& characters) {
  std::size_t kept = 0, starter = SIZE_MAX;
  int last_class = -1;  // class of the last character that was kept since the starter; -1: none
  for (const std::uint32_t c : characters) {
    const int class_of_c = tables.class_of(c);
    if (starter != SIZE_MAX && last_class < class_of_c) {
      if (const std::uint32_t both = tables.composed(characters[starter], c); both != 0) {
        characters[starter] = both;
        continue;
      }
    }
    if (class_of_c == 0) starter = kept;
    last_class = class_of_c == 0 ? -1 : class_of_c;
    characters[kept++] = c;
  }
  characters.resize(kept);
}

}  // namespace

void append_decomposition(std::uint32_t code_point, std::vector<std::uint32_t>& out) {
  CanonicalTables::instance().decompose(code_point, out);
}

std::uint8_t combining_class(std::uint32_t code_point) {
  return CanonicalTables::instance().class_of(code_point);
}

std::string_view normalized_text(std::string_view text, NormalForm form, std::string& buffer) {
  const unsigned char first_byte = kFirstByte[static_cast<std::size_t>(form)];
  const auto is_plain = [&](char c) { return static_cast<unsigned char>(c) < first_byte; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return text;
  const CanonicalTables& tables = CanonicalTables::instance();
  const bool compatible = form == NormalForm::kc || form == NormalForm::kd;
  const bool composes = form == NormalForm::c || form == NormalForm::kc;
  const Decompositions* const others = compatible ? &compatibility_tables() : nullptr;
  buffer.clear();
  std::vector<std::uint32_t> pending;  // characters that later ones may still change
  const auto flush = [&] {
    if (pending.size() > 1) {
      put_in_order(tables, pending);
      if (composes) compose(tables, pending);
    }
    for (const std::uint32_t c : pending) append_utf8(buffer, c);
    pending.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at, 4));
    if (c.bytes == 0) {
      flush();
      buffer.push_back(text[at++]);
      continue;
    }
    const bool inert = tables.is_inert(c.value) && (others == nullptr || others->is_inert(c.value));
    if (c.value < kFirstMark || inert) flush();
    if (inert) {
      buffer.append(text, at, c.bytes);
    } else if (const auto parts = others == nullptr ? std::span<const char32_t>() : others->of(c.value);
               !parts.empty()) {
      pending.insert(pending.end(), parts.begin(), parts.end());
    } else {
      tables.decompose(c.value, pending);
    }
    at += c.bytes;
  }
  flush();
  return buffer;
}

}  // namespace megatron
