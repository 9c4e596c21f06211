#include "data/tokenizer/piece_scanner.h"

#include <algorithm>
#include <string_view>

#include "base/text/utf8.h"

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

/// The same in any case. The long s U+017F is an s in another case.
std::ptrdiff_t contraction_in_any_case(const char* at, const char* end) {
  std::string_view rest(at + 1, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at - 1, 2)));
  if (rest == "\u017F") return 3;
  char lower[3] = {'\''};
  for (std::size_t i = 0; i < rest.size(); ++i) {
    lower[i + 1] = rest[i] >= 'A' && rest[i] <= 'Z' ? static_cast<char>(rest[i] - 'A' + 'a') : rest[i];
  }
  return contraction(lower, lower + 1 + rest.size());
}

}  // namespace

PieceScanner::PieceScanner(SplitPattern pattern)
    : pattern_(pattern),
      by_case_(pattern == SplitPattern::o200k || pattern == SplitPattern::tekken),
      classes_(pattern == SplitPattern::single_digits ? CharacterClasses::with_late_digits()
                                                      : CharacterClasses::instance()) {
  for (std::uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = classes_.of(c);
}

PieceScanner::Character PieceScanner::character_at(const char* at, const char* end) const {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) return {ascii_[byte], 1};
  const CodePoint code = first_code_point({at, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at, 4))});
  return code.bytes == 0 ? Character{CharacterClass::other, 1} : Character{classes_.of(code.value), code.bytes};
}

/// The end of the run of characters of one class that continues at `at`.
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

PieceScanner::Spaces PieceScanner::spaces_at(const char* begin, const char* end) const {
  Spaces spaces{begin, begin, nullptr};
  while (spaces.end < end) {
    const Character character = character_at(spaces.end, end);
    if (character.of != CharacterClass::space) break;
    spaces.last = spaces.end;
    spaces.end += character.bytes;
    if (*spaces.last == '\n' || *spaces.last == '\r') spaces.newlines_end = spaces.end;
  }
  return spaces;
}

/// \s+(?!\S)|\s+ : a run of spaces leaves its last one to what follows, unless nothing follows or it is the only one.
const char* PieceScanner::spaces_end(const Spaces& spaces, const char* begin, const char* end) {
  return spaces.end == end || spaces.last == begin ? spaces.end : spaces.last;
}

const char* PieceScanner::any_piece_end(const char* begin, const char* end) const {
  switch (pattern_) {
    case SplitPattern::single_digits: return single_digits_piece_end(begin, end);
    case SplitPattern::cl100k: return cl100k_piece_end(begin, end, 3);
    case SplitPattern::qwen2: return cl100k_piece_end(begin, end, 1);
    case SplitPattern::o200k: return o200k_piece_end(begin, end, true, 3);
    case SplitPattern::tekken: return o200k_piece_end(begin, end, false, 1);
    case SplitPattern::gpt2: break;
  }
  return gpt2_piece_end(begin, end);
}

const char* PieceScanner::gpt2_piece_end(const char* begin, const char* end) const {
  const char* at = begin;
  if (*at == '\'') {
    const std::ptrdiff_t length = contraction(at, end);
    if (length > 0) return at + length;
  } else if (*at == ' ' && end - at > 1) {
    ++at;
  }
  const Character first = character_at(at, end);
  if (first.of == CharacterClass::space) return spaces_end(spaces_at(begin, end), begin, end);
  return run_end(first.of, at + first.bytes, end);
}

/// Text between digits is cut as if it were the whole text: spaces in front of a digit stay together.
const char* PieceScanner::single_digits_piece_end(const char* begin, const char* end) const {
  const Character first = character_at(begin, end);
  if (first.of == CharacterClass::digit) return begin + first.bytes;
  if (first.of == CharacterClass::space) {
    const Spaces spaces = spaces_at(begin, end);
    if (spaces.end < end && character_at(spaces.end, end).of == CharacterClass::digit) return spaces.end;
  }
  return gpt2_piece_end(begin, end);
}

const char* PieceScanner::cl100k_piece_end(const char* begin, const char* end, int most_digits) const {
  if (*begin == '\'') {
    const std::ptrdiff_t length = contraction_in_any_case(begin, end);
    if (length > 0) return begin + length;
  }
  const Character first = character_at(begin, end);
  const char* at = begin + first.bytes;
  if (first.of == CharacterClass::letter) return run_end(first.of, at, end);
  if (first.of == CharacterClass::digit) return digits_end(at, end, most_digits);
  // One character that is no CR or LF may stand in front of letters, a space in front of signs.
  const CharacterClass next = at < end ? character_at(at, end).of : CharacterClass::space;
  if (next == CharacterClass::letter && *begin != '\r' && *begin != '\n') return run_end(next, at, end);
  if (first.of == CharacterClass::other || (*begin == ' ' && next == CharacterClass::other)) {
    return signs_end(at, end, "\r\n");
  }
  const Spaces spaces = spaces_at(begin, end);
  return spaces.newlines_end != nullptr ? spaces.newlines_end : spaces_end(spaces, begin, end);
}

/// The end of a number whose first digit ends at `at`.
const char* PieceScanner::digits_end(const char* at, const char* end, int most_digits) const {
  for (int digits = 1; digits < most_digits && at < end; ++digits) {
    const Character next = character_at(at, end);
    if (next.of != CharacterClass::digit) break;
    at += next.bytes;
  }
  return at;
}

/// The end of signs that continue at `at`, with the bytes of `after` that follow.
const char* PieceScanner::signs_end(const char* at, const char* end, std::string_view after) const {
  at = run_end(CharacterClass::other, at, end);
  while (at < end && after.find(*at) != std::string_view::npos) ++at;
  return at;
}

/// Letters and marks: upper case, then lower case. What is both (\p{Lo}, \p{M}) takes part in either. nullptr if there
/// is no such word, even without the sign or space that may be in front of one.
const char* PieceScanner::cased_word_end(const char* begin, const char* end) const {
  const auto letter_at = [&](const char* at) -> std::pair<LetterCase, std::uint32_t> {
    const CodePoint c = first_code_point({at, static_cast<std::size_t>(std::min<std::ptrdiff_t>(end - at, 4))});
    return {c.bytes == 0 ? LetterCase::none : classes_.case_of(c.value), std::max(c.bytes, 1u)};
  };
  const Character first = character_at(begin, end);
  const bool in_front =
      first.of != CharacterClass::letter && first.of != CharacterClass::digit && *begin != '\r' && *begin != '\n';
  const char *const word = in_front ? begin + first.bytes : begin, *at = word, *both_end = nullptr;
  bool lower = false;
  while (at < end) {
    const auto [of, bytes] = letter_at(at);
    if (of == LetterCase::none || (lower && of == LetterCase::upper)) break;
    lower = lower || of == LetterCase::lower;
    at += bytes;
    if (of == LetterCase::both) both_end = at;
  }
  if (lower) return at;
  if (both_end != nullptr) return both_end;  // all upper-case letters after it begin another word
  if (in_front && letter_at(begin).first == LetterCase::both) return word;  // a mark is a word by itself
  return at > word ? at : nullptr;
}

const char* PieceScanner::o200k_piece_end(const char* begin, const char* end, bool contractions,
                                          int most_digits) const {
  if (const char* const word = cased_word_end(begin, end)) {
    return contractions && word < end && *word == '\'' ? word + contraction_in_any_case(word, end) : word;
  }
  const Character first = character_at(begin, end);
  const char* const at = begin + first.bytes;
  if (first.of == CharacterClass::digit) return digits_end(at, end, most_digits);
  const bool sign_follows = at < end && character_at(at, end).of == CharacterClass::other;
  if (first.of == CharacterClass::other || (*begin == ' ' && sign_follows)) return signs_end(at, end, "\r\n/");
  const Spaces spaces = spaces_at(begin, end);
  return spaces.newlines_end != nullptr ? spaces.newlines_end : spaces_end(spaces, begin, end);
}

}  // namespace megatron
