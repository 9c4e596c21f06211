#include "data/cleaning/mojibake.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "data/cleaning/character_repairs.h"
#include "data/cleaning/mojibake_tables.h"
#include "data/cleaning/neighbours.h"

namespace megatron {

namespace {

constexpr unsigned kNoBreakSpace = 0xA0;
constexpr int kMojibakeRounds = 8;

/// A character as a byte of UTF-8. Bit n: in encoding n it is a byte, one that leads a sequence, one that continues it.
struct CharacterBytes {
  std::uint16_t known = 0, leads = 0, continues = 0;
  std::array<unsigned char, kSingleByteEncodings> byte{};
};

class EncodingTables {
 public:
  static const EncodingTables& instance() {
    static const EncodingTables tables;
    return tables;
  }
  const CharacterBytes& of(char32_t c) const {
    if (c >= 0x10000) return none_;
    const auto& page = pages_[c >> 8];
    return page == nullptr ? none_ : (*page)[c & 0xFF];
  }
  /// Encodings that leave bytes undefined, which programs lose; and those that have a non-breaking space at 0xA0.
  std::uint16_t lossy() const { return lossy_; }
  std::uint16_t spaced() const { return spaced_; }

 private:
  EncodingTables() {
    const auto encodings = single_byte_encodings();
    for (std::size_t i = 0; i < encodings.size(); ++i) {
      const auto bit = static_cast<std::uint16_t>(1u << i);
      if (encodings[i].undefined) lossy_ |= bit;
      if (encodings[i].high[kNoBreakSpace - 0x80] == kNoBreakSpace) spaced_ |= bit;
      for (unsigned byte = 0x80; byte < 0x100; ++byte) {
        CharacterBytes& c = entry(encodings[i].high[byte - 0x80]);
        c.known |= bit;
        c.byte[i] = static_cast<unsigned char>(byte);
        if (byte >= 0xC2 && byte <= 0xF4) c.leads |= bit;
        if (byte < 0xC0) c.continues |= bit;
      }
    }
    for (char32_t c = 0; c < 0x80; ++c) entry(c).known = static_cast<std::uint16_t>((1u << kSingleByteEncodings) - 1);
    // May continue a sequence as what was a non-breaking space, or a byte that was lost.
    entry(' ').continues = spaced_;
    entry('?').continues = entry(kReplacementCharacter).continues = entry(kReplacementCharacter).known = lossy_;
  }
  CharacterBytes& entry(char32_t c) {
    auto& page = pages_[c >> 8];
    if (page == nullptr) page = std::make_unique<std::array<CharacterBytes, 256>>();
    return (*page)[c & 0xFF];
  }

  std::array<std::unique_ptr<std::array<CharacterBytes, 256>>, 256> pages_;
  CharacterBytes none_;
  std::uint16_t lossy_ = 0, spaced_ = 0;
};

bool has(std::uint16_t bits, std::size_t encoding) {
  return (bits >> encoding & 1u) != 0;
}

/// Whether `second` may be the byte after `lead`: no overlong forms, nothing above U+10FFFF.
bool may_follow(unsigned lead, unsigned second) {
  switch (lead) {
    case 0xE0: return second >= 0xA0;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second < 0x90;
    default: return true;
  }
}

bool is_letter_or_digit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

/// Whether a sequence may be certain: not where its second character may be a space or a question mark as well, but for
/// the most frequent leads.
bool may_be_certain(char32_t lead, char32_t second) {
  return second >= 0x80 || lead == U'Ã' || lead == U'Â';
}

/// Blocks of 128 characters, of which scripts have one or a few.
char32_t block_of(char32_t c) {
  return c >> 7;
}

}  // namespace

char32_t without_c1(char32_t c) {
  const auto& windows = single_byte_encodings()[1];
  return c >= 0x80 && c <= 0x9F ? windows.high[c - 0x80] : c;
}

/// A character, or two surrogates that are one.
MojibakeRepair::Sequence MojibakeRepair::sequence_at(std::u32string_view line, std::size_t at,
                                                     std::size_t encoding) const {
  const Sequence first = unit_at(line, at, encoding);
  if (first.decoded < 0xD800 || first.decoded > 0xDFFF) return first;
  const std::size_t next = at + first.length;
  if (first.decoded > 0xDBFF || next >= line.size()) return {};
  const Sequence second = unit_at(line, next, encoding);
  if (second.decoded < 0xDC00 || second.decoded > 0xDFFF) return {};
  return {.length = first.length + second.length,
          .decoded = 0x10000 + ((first.decoded & 0x3FF) << 10 | (second.decoded & 0x3FF))};
}

MojibakeRepair::Sequence MojibakeRepair::unit_at(std::u32string_view line, std::size_t at, std::size_t encoding) const {
  const EncodingTables& tables = EncodingTables::instance();
  if (!has(tables.of(line[at]).leads, encoding)) return {};
  const unsigned lead = tables.of(line[at]).byte[encoding];
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length > line.size() - at) return {};
  char32_t value = lead & (0x7Fu >> length);
  std::size_t kept = 0, spaces_taken = 0;
  for (std::size_t i = 1; i < length; ++i) {
    const char32_t c = line[at + i];
    const CharacterBytes& bytes = tables.of(c);
    if (!has(bytes.continues, encoding)) return {};
    unsigned byte = bytes.byte[encoding];
    if (c == ' ') {
      if (!spaces || ++spaces_taken > 1) return {};
      byte = kNoBreakSpace;
    } else if (c == '?' || c == kReplacementCharacter) {
      if (!lost) return {};
      byte = 0;
    } else {
      ++kept;
    }
    if (byte != 0 && i == 1 && !may_follow(lead, byte)) return {};
    value = byte == 0 || value == kReplacementCharacter ? kReplacementCharacter : value << 6 | (byte & 0x3Fu);
  }
  if (length > 2 && kept == 0) return {};
  Sequence sequence{.length = length, .decoded = value};
  // "Ã la" was "à la" with a non-breaking space that took the other one along; in "Ã  la" both are there.
  const std::size_t end = at + length;
  sequence.keeps_space = value == U'à' && spaces_taken > 0 && end < line.size() && is_letter_or_digit(line[end]);
  return sequence;
}

bool MojibakeRepair::is_certain(std::u32string_view line, std::size_t at, const Sequence& sequence) const {
  if (!may_be_certain(line[at], line[at + 1])) return false;
  // Dashes, quotation marks and the like, and byte order marks, are frequent in damaged text, and rare by chance.
  if ((sequence.decoded >= 0x2010 && sequence.decoded <= 0x203A) || sequence.decoded == 0xFEFF) return true;
  return is_unlikely(line, at, at + sequence.length);
}

bool MojibakeRepair::looks_damaged(std::u32string_view line) const {
  const EncodingTables& tables = EncodingTables::instance();
  for (std::size_t at = 0; at + 1 < line.size(); ++at) {
    if (line[at] < 0x80 || !may_be_certain(line[at], line[at + 1])) continue;
    const std::uint16_t possible = tables.of(line[at]).leads & tables.of(line[at + 1]).continues;
    for (std::size_t i = 0; possible >> i != 0; ++i) {
      if (!has(possible, i)) continue;
      const Sequence sequence = sequence_at(line, at, i);
      if (sequence.length > 0 && is_certain(line, at, sequence)) return true;
    }
  }
  return false;
}

/// The line in the first encoding that makes UTF-8 of all of it.
bool MojibakeRepair::decode_whole(std::u32string_view line, std::u32string& decoded) {
  const EncodingTables& tables = EncodingTables::instance();
  std::uint16_t known = 0xFFFF;
  for (const char32_t c : line) known &= tables.of(c).known;
  work_ += line.size();
  for (std::size_t i = 0; i < kSingleByteEncodings; ++i) {
    if (!has(known, i)) continue;
    work_ += line.size();
    decoded.clear();
    bool certain = false;
    std::size_t at = 0;
    while (at < line.size()) {
      if (line[at] < 0x80 || (line[at] == kReplacementCharacter && lost)) {
        decoded.push_back(line[at++]);
        continue;
      }
      const Sequence sequence = sequence_at(line, at, i);
      if (sequence.length == 0) break;
      certain = certain || is_certain(line, at, sequence);
      decoded.push_back(sequence.decoded);
      if (sequence.keeps_space) decoded.push_back(' ');
      at += sequence.length;
    }
    if (at == line.size() && certain) return true;
  }
  return false;
}

MojibakeRepair::Chain MojibakeRepair::chain_at(std::u32string_view line, std::size_t at, std::size_t encoding) const {
  Chain chain{.begin = at, .end = at, .decoded = {}};
  while (chain.end < line.size()) {
    const Sequence sequence = sequence_at(line, chain.end, encoding);
    if (sequence.length == 0) break;
    chain.certain = chain.certain || is_certain(line, chain.end, sequence);
    chain.decoded.push_back(sequence.decoded);
    if (sequence.keeps_space) chain.decoded.push_back(' ');
    chain.end += sequence.length;
  }
  return chain;
}

/// Undoes the parts of the line that are UTF-8 in the encoding with the most of them: those that are certain, and
/// others that become characters of the same blocks.
bool MojibakeRepair::decode_parts(std::u32string_view line, std::u32string& decoded) {
  std::vector<Chain> best;
  std::size_t most = 0;
  for (std::size_t i = 0; i < kSingleByteEncodings; ++i) {
    work_ += line.size();
    std::vector<Chain> chains;
    std::size_t characters = 0;
    for (std::size_t at = 0; at < line.size();) {
      Chain chain = chain_at(line, at, i);
      at = std::max(chain.end, at + 1);
      if (chain.decoded.empty()) continue;
      if (chain.certain) characters += chain.end - chain.begin;
      chains.push_back(std::move(chain));
    }
    if (characters > most) {
      most = characters;
      best = std::move(chains);
    }
  }
  if (most == 0) return false;
  std::set<char32_t> blocks;
  for (const Chain& chain : best) {
    if (!chain.certain) continue;
    for (const char32_t c : chain.decoded) blocks.insert(block_of(c));
  }
  decoded.clear();
  std::size_t at = 0;
  for (const Chain& chain : best) {
    const bool fits = std::all_of(chain.decoded.begin(), chain.decoded.end(),
                                  [&](char32_t c) { return c < 0x80 || blocks.contains(block_of(c)); });
    if (!chain.certain && !fits) continue;
    decoded.append(line.substr(at, chain.begin - at));
    decoded += chain.decoded;
    at = chain.end;
  }
  decoded.append(line.substr(at));
  return true;
}

std::u32string MojibakeRepair::repaired(std::u32string line) {
  std::u32string decoded;
  for (int round = 0; round < kMojibakeRounds; ++round) {
    work_ += line.size();
    if (!looks_damaged(line)) break;
    if (!decode_whole(line, decoded) && !(mixed && decode_parts(line, decoded))) break;
    std::swap(line, decoded);
  }
  return line;
}

}  // namespace megatron
