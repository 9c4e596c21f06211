#include "data/cleaning/encoding_repair.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text/utf8.h"
#include "data/cleaning/character_repairs.h"
#include "data/cleaning/html_entities.h"
#include "data/cleaning/mojibake.h"
#include "data/unicode/normalization.h"

namespace megatron {

namespace {

constexpr RepairRow kRows[kRepairs] = {
    {Repair::html_entities, "html_entities", true,
     "&amp; and the like become the characters they stand for, up to the first line with a '<'"},
    {Repair::mojibake, "mojibake", true,
     "UTF-8 that was read in another encoding (windows-1252, latin-1, windows-1251 and others), once or several times"},
    {Repair::spaces, "spaces", true, "within mojibake, a space may have been a non-breaking one"},
    {Repair::lost_bytes, "lost_bytes", true, "within mojibake, a character of which bytes were lost becomes U+FFFD"},
    {Repair::mixed_encodings, "mixed_encodings", true, "mojibake in parts of a line"},
    {Repair::c1_controls, "c1_controls", true, "U+0080 to U+009F become the characters of windows-1252"},
    {Repair::ligatures, "ligatures", true, "Latin ligatures become letters"},
    {Repair::widths, "widths", true, "full-width and half-width characters become the usual ones"},
    {Repair::quotes, "quotes", true, "curly quotation marks become straight ones"},
    {Repair::line_ends, "line_ends", true, "CR LF, CR, U+0085, U+2028 and U+2029 become line feeds"},
    {Repair::surrogates, "surrogates", true, "pairs of surrogates become the character they stand for (others U+FFFD)"},
    {Repair::terminal_escapes, "terminal_escapes", true, "escape sequences of terminals are removed"},
    {Repair::controls, "controls", true,
     "control characters without an effect on text are removed, and byte order marks"},
    {Repair::composition, "composition", true, "Unicode's form C: letters and their marks become one character"},
};

/// Rounds of all repairs: another one only follows where the last one changed something.
constexpr int kRepairRounds = 8;
constexpr char32_t kEscape = 0x1B;

constexpr std::size_t index(Repair repair) {
  return static_cast<std::size_t>(repair);
}

/// Whether it is ASCII that no repair changes.
bool is_plain(std::string_view text) {
  bool plain = true;  // without an early end within a block, so that the compiler can use vectors
  for (std::size_t at = 0; at < text.size() && plain;) {
    const std::size_t end = std::min(text.size(), at + 256);
    for (; at < end; ++at) {
      const auto c = static_cast<unsigned char>(text[at]);
      plain &= (c >= 0x20 && c < 0x7F && c != '&') || c == '\n' || c == '\t' || c == '\f';
    }
  }
  return plain;
}

/// The first character of `text`; `bytes` are those that it takes. What is no UTF-8 is U+FFFD; so are surrogates, but
/// for pairs, if `pairs` are joined.
CodePoint lenient_code_point(std::string_view text, bool pairs) {
  if (const CodePoint c = first_code_point(text); c.bytes != 0) return c;
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto is_surrogate = [&](std::size_t i) {
    return byte(i) == 0xED && (byte(i + 1) & 0xE0u) == 0xA0 && (byte(i + 2) & 0xC0u) == 0x80;
  };
  if (!is_surrogate(0)) {
    // Bytes that begin a sequence and break off are one U+FFFD.
    std::uint32_t bytes = 1;
    const unsigned first = byte(0);
    const std::uint32_t expected = first >= 0xF0 && first <= 0xF4 ? 4 : first >= 0xE0 && first < 0xF0 ? 3 : 1;
    const unsigned least = first == 0xE0   ? 0xA0
                           : first == 0xF0 ? 0x90
                                           : 0x80,
                   most = first == 0xED   ? 0x9F
                          : first == 0xF4 ? 0x8F
                                          : 0xBF;
    if (expected > 1 && byte(1) >= least && byte(1) <= most) bytes = expected == 4 && (byte(2) & 0xC0u) == 0x80 ? 3 : 2;
    return {kReplacementCharacter, bytes};
  }
  const bool pair = pairs && byte(1) < 0xB0 && is_surrogate(3) && byte(4) >= 0xB0;
  if (!pair) return {kReplacementCharacter, 3};
  return {0x10000 + ((byte(1) & 0xFu) << 16 | (byte(2) & 0x3Fu) << 10 | (byte(4) & 0xFu) << 6 | (byte(5) & 0x3Fu)), 6};
}

/// Appends the characters of `line`; false if it is no UTF-8.
bool append_characters(std::string_view line, bool pairs, std::u32string& out) {
  bool valid = true;
  for (std::size_t at = 0; at < line.size();) {
    if (const auto c = static_cast<unsigned char>(line[at]); c < 0x80) {
      out.push_back(c);
      ++at;
      continue;
    }
    CodePoint c = first_code_point(line.substr(at, 4));
    if (c.bytes == 0) {
      valid = false;
      c = lenient_code_point(line.substr(at, 6), pairs);
    }
    out.push_back(c.value);
    at += c.bytes;
  }
  return valid;
}

std::u32string without_entities(const std::u32string& line) {
  std::u32string out;
  std::string ascii;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] == '&') {
      ascii.clear();
      for (std::size_t i = at; i < line.size() && line[i] < 0x80 && i - at < kLongestEntity; ++i) {
        ascii.push_back(static_cast<char>(line[i]));
        if (line[i] == ';') break;
      }
      if (const EntityMatch entity = first_entity(ascii); entity.bytes > 0) {
        append_characters(entity.text, true, out);
        at += entity.bytes;
        continue;
      }
    }
    out.push_back(line[at++]);
  }
  return out;
}

bool has_entity(std::string_view line) {
  for (std::size_t at = line.find('&'); at != line.npos; at = line.find('&', at + 1)) {
    if (first_entity(line.substr(at)).bytes > 0) return true;
  }
  return false;
}

std::u32string without_escapes(const std::u32string& line) {
  const auto is_letter = [](char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::u32string out;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at;
    if (line[at] == kEscape && at + 1 < line.size() && line[at + 1] == '[') {
      end = at + 2;
      while (end < line.size() && ((line[end] >= '0' && line[end] <= '9') || line[end] == ';')) ++end;
      end = end < line.size() && is_letter(line[end]) ? end + 1 : at;
    }
    if (end == at) out.push_back(line[end++]);
    at = end;
  }
  return out;
}

/// The line with the characters that `form` has something for replaced by it.
std::u32string with_forms(const std::u32string& line, std::u32string_view (*form)(char32_t)) {
  std::u32string out;
  for (const char32_t c : line) {
    if (const std::u32string_view to = form(c); to.empty())
      out.push_back(c);
    else
      out += to;
  }
  return out;
}

std::u32string with_line_feeds(const std::u32string& line) {
  std::u32string out;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\r' && at + 1 < line.size() && line[at + 1] == '\n') continue;
    out.push_back(is_line_end(line[at]) ? U'\n' : line[at]);
  }
  return out;
}

std::string utf8_of(std::u32string_view line) {
  std::string text;
  for (const char32_t c : line) append_utf8(text, c);
  return text;
}

std::u32string composed(const std::u32string& line) {
  std::string buffer;
  const std::string text = utf8_of(line);
  std::u32string out;
  append_characters(normalized_nfc(text, buffer), true, out);
  return out;
}

template <class Test>
bool any(std::u32string_view line, const Test& test) {
  return std::any_of(line.begin(), line.end(), test);
}

}  // namespace

std::span<const RepairRow, kRepairs> repair_rows() {
  return kRows;
}

EncodingRepair::Choice EncodingRepair::defaults() {
  Choice on{};
  for (const RepairRow& row : kRows) on[index(row.repair)] = row.on;
  return on;
}

EncodingRepair::EncodingRepair(const Choice& on) : on_(on) {}

/// Whether no repair but that of entities, turned on or not, would change the line.
bool EncodingRepair::needs_nothing(std::u32string_view line) const {
  const ComposedCharacters& composed_characters = ComposedCharacters::instance();
  const bool changes = any(line, [&](char32_t c) { return is_replaced(c) || !composed_characters.has(c); });
  return !changes && !MojibakeRepair().looks_damaged(line);
}

std::u32string EncodingRepair::one_round(std::u32string line, bool entities, std::array<bool, kRepairs>& changes) {
  /// Replaces the line, where `repair` is on and the line has a character that needs it.
  const auto apply = [&](Repair repair, const auto& needs, const auto& repaired) {
    work_ += line.size();
    if (!on_[index(repair)] || !any(line, needs)) return;
    std::u32string next = repaired(line);
    changes[index(repair)] |= next != line;
    line = std::move(next);
  };
  const auto each = [](const auto& change) {
    return [change](std::u32string text) {
      std::transform(text.begin(), text.end(), text.begin(), change);
      return text;
    };
  };
  const auto is = [](char32_t wanted) { return [wanted](char32_t c) { return c == wanted; }; };
  if (entities) apply(Repair::html_entities, is('&'), without_entities);
  apply(
      Repair::mojibake, [](char32_t c) { return c >= 0x80; },
      [&](const std::u32string& text) {
        MojibakeRepair mojibake;
        mojibake.spaces = on_[index(Repair::spaces)];
        mojibake.lost = on_[index(Repair::lost_bytes)];
        mojibake.mixed = on_[index(Repair::mixed_encodings)];
        std::u32string next = mojibake.repaired(text);
        work_ += mojibake.work();
        return next;
      });
  apply(
      Repair::c1_controls, [](char32_t c) { return c >= 0x80 && c <= 0x9F; }, each(without_c1));
  const auto apply_forms = [&](Repair repair, std::u32string_view (*form)(char32_t)) {
    apply(
        repair, [form](char32_t c) { return !form(c).empty(); },
        [form](const std::u32string& text) { return with_forms(text, form); });
  };
  apply_forms(Repair::ligatures, letters_of_ligature);
  apply_forms(Repair::widths, usual_width);
  apply(
      Repair::quotes, [](char32_t c) { return is_single_quote(c) || is_double_quote(c); }, each([](char32_t c) {
        return is_single_quote(c) ? U'\'' : is_double_quote(c) ? U'"' : c;
      }));
  apply(Repair::line_ends, is_line_end, with_line_feeds);
  apply(Repair::terminal_escapes, is(kEscape), without_escapes);
  apply(Repair::controls, is_removed_control, [](std::u32string text) {
    std::erase_if(text, is_removed_control);
    return text;
  });
  apply(
      Repair::composition, [&](char32_t c) { return !ComposedCharacters::instance().has(c); }, composed);
  return line;
}

void EncodingRepair::repair_line(std::u32string line, bool entities, std::string& out) {
  std::array<bool, kRepairs> changes{};
  for (int round = 0; round < kRepairRounds; ++round) {
    std::u32string next = one_round(line, entities, changes);
    if (next == line) break;
    line = std::move(next);
  }
  for (std::size_t i = 0; i < kRepairs; ++i) changed_[i] += changes[i];
  for (const char32_t c : line) append_utf8(out, c);
}

std::string_view EncodingRepair::repaired(std::string_view text, std::string& buffer) {
  if (is_plain(text)) return text;
  buffer.clear();
  bool entities = true;
  std::size_t kept = 0;  // the text before it is in the buffer
  std::u32string characters;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = text.substr(begin, end - begin);
    entities = entities && line.find('<') == line.npos;
    if (is_plain(line)) continue;
    characters.clear();
    const bool valid = append_characters(line, on_[index(Repair::surrogates)], characters);
    if (valid && !(entities && has_entity(line)) && needs_nothing(characters)) continue;
    buffer.append(text, kept, begin - kept);
    kept = end;
    changed_[index(Repair::surrogates)] += !valid;
    repair_line(characters, entities, buffer);
  }
  if (kept == 0) return text;
  buffer.append(text, kept);
  return buffer;
}

}  // namespace megatron
