#include "tokenizer/piece_scanner.h"

#include <algorithm>
#include <string_view>

#include "base/utf8.h"

namespace megatron {

namespace {

/// The length of the contraction 's 't 're 've 'm 'll 'd that begins at `at`, with the apostrophe; 0 if none does.
std::ptrdiff_t contraction(const char* at, const char* end) {
  const std::string_view rest(at + 1, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at - 1, 2)));
  if (rest.empty()) return 0;
  switch (rest[0]) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return rest.size() == 2 && rest[1] == 'e' ? 3 : 0;
    case 'l': return rest.size() == 2 && rest[1] == 'l' ? 3 : 0;
    default: return 0;
  }
}

}  // namespace

PieceScanner::PieceScanner() : classes_(CharacterClasses::instance()) {
  for (std::uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = classes_.of(c);
}

PieceScanner::Character PieceScanner::character_at(const char* at, const char* end) const {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) return {ascii_[byte], 1};
  const CodePoint code = first_code_point({at, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at, 4))});
  return code.bytes == 0 ? Character{CharacterClass::other, 1} : Character{classes_.of(code.value), code.bytes};
}

/// The end of the run of characters of one class that goes on at `at`.
const char* PieceScanner::run_end(CharacterClass of, const char* at, const char* end) const {
  while (at < end) {
    if (of == CharacterClass::letter && end - at >= 8) {
      const std::ptrdiff_t letters = ascii_letters(at);
      at += letters;
      if (letters == 8) continue;
    }
    if (at == end) break;
    const Character character = character_at(at, end);
    if (character.of != of) break;
    at += character.bytes;
  }
  return at;
}

/// \s+(?!\S)|\s+ : a run of spaces leaves its last one to what follows, unless nothing follows or it is the only one.
const char* PieceScanner::spaces_end(const char* begin, const char* end) const {
  const char *at = begin, *last = begin;
  while (at < end) {
    const Character character = character_at(at, end);
    if (character.of != CharacterClass::space) break;
    last = at;
    at += character.bytes;
  }
  return at == end || last == begin ? at : last;
}

const char* PieceScanner::any_piece_end(const char* begin, const char* end) const {
  const char* at = begin;
  if (*at == '\'') {
    const std::ptrdiff_t length = contraction(at, end);
    if (length > 0) return at + length;
  } else if (*at == ' ' && end - at > 1) {
    ++at;
  }
  const Character first = character_at(at, end);
  if (first.of == CharacterClass::space) return spaces_end(begin, end);
  return run_end(first.of, at + first.bytes, end);
}

}  // namespace megatron
