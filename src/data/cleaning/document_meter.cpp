#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/text/utf8.h"
#include "data/cleaning/ascii.h"
#include "data/cleaning/quality_rules.h"
#include "data/unicode/character_classes.h"

namespace megatron {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kStopWords[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
constexpr std::size_t kLongestStopWord = 4;
constexpr std::string_view kEllipsis = "\u2026"sv, kDots = "..."sv;
constexpr std::string_view kBullets[] = {"-"sv, "*"sv, "\u2022"sv, "\u2023"sv, "\u25CF"sv, "\u25E6"sv};

std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// Bit n: stop word n. The word without punctuation around it, in any case.
unsigned stop_word_bit(std::string_view word) {
  while (!word.empty() && !is_ascii_letter(word.front())) word.remove_prefix(1);
  while (!word.empty() && !is_ascii_letter(word.back())) word.remove_suffix(1);
  if (word.empty() || word.size() > kLongestStopWord) return 0;
  char lower[kLongestStopWord];
  for (std::size_t i = 0; i < word.size() && i < kLongestStopWord; ++i) lower[i] = static_cast<char>(word[i] | 0x20);
  const auto found = std::find(std::begin(kStopWords), std::end(kStopWords), std::string_view(lower, word.size()));
  return found == std::end(kStopWords) ? 0 : 1u << (found - std::begin(kStopWords));
}

bool has_javascript(std::string_view text) {
  constexpr std::string_view kWord = "javascript";
  const auto same = [](char c, char wanted) { return (c | 0x20) == wanted; };
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), same) != text.end();
}

std::string_view without_outer_space(std::string_view text) {
  while (!text.empty() && is_ascii_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_ascii_space(text.back())) text.remove_suffix(1);
  return text;
}

bool begins_with_bullet(std::string_view line) {
  return std::any_of(std::begin(kBullets), std::end(kBullets), [&](auto bullet) { return line.starts_with(bullet); });
}

}  // namespace

/// Makes the table empty, with room for that number of hashes.
void DocumentMeter::start_table(std::size_t entries) {
  const std::size_t slots = std::bit_ceil(2 * entries + 2);
  if (table_.size() < slots || ++stamp_ == 0) {
    const std::size_t size = std::max(slots, table_.size());
    table_ = {};  // gives its memory back before it takes more
    table_.resize(size);
    stamp_ = 1;
  }
}

/// How often the hash has been added to the table, this time included.
std::uint32_t DocumentMeter::add(std::uint64_t hash) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = (hash ^ hash >> 32) & mask;
  while (table_[at].stamp == stamp_ && table_[at].hash != hash) at = (at + 1) & mask;
  ++work_;
  if (table_[at].stamp != stamp_) table_[at] = {hash, 0, stamp_};
  return ++table_[at].count;
}

void DocumentMeter::read_words(std::string_view text, DocumentMeasures& measures) {
  const CharacterClasses& classes = CharacterClasses::instance();
  words_.clear();
  unsigned stop_words = 0;
  const auto end_word = [&](std::size_t begin, std::size_t end, bool letter) {
    if (begin == end) return;
    const std::string_view word = text.substr(begin, end - begin);
    words_.push_back({XXH3_64bits(word.data(), word.size()), characters_of(word)});
    measures.word_characters += words_.back().characters;
    measures.letter_words += letter;
    if (letter) stop_words |= stop_word_bit(word);
  };
  std::size_t begin = 0;
  bool letter = false;
  for (std::size_t at = 0; at < text.size();) {
    bool space = is_ascii_space(text[at]);
    std::size_t bytes = 1;
    if (static_cast<unsigned char>(text[at]) >= 0x80) {
      const CodePoint c = first_code_point(text.substr(at, 4));
      const CharacterClass of = c.bytes == 0 ? CharacterClass::other : classes.of(c.value);
      space = of == CharacterClass::space;
      letter |= of == CharacterClass::letter;
      bytes = std::max<std::size_t>(c.bytes, 1);
    } else {
      letter |= is_ascii_letter(text[at]);
    }
    if (space) {
      end_word(begin, at, letter);
      begin = at + bytes;
      letter = false;
    }
    at += bytes;
  }
  end_word(begin, text.size(), letter);
  work_ += words_.size();
  measures.words = words_.size();
  measures.stop_words = static_cast<std::size_t>(std::popcount(stop_words));
}

/// Lines and paragraphs, and those that were there before.
void DocumentMeter::read_lines(std::string_view text, DocumentMeasures& measures) {
  struct Part {
    std::uint64_t hash;
    std::size_t characters;
  };
  std::vector<Part> lines, paragraphs;
  std::size_t paragraph_begin = text.npos, paragraph_end = 0;
  const auto end_paragraph = [&] {
    if (paragraph_begin == text.npos) return;
    const std::string_view paragraph =
        without_outer_space(text.substr(paragraph_begin, paragraph_end - paragraph_begin));
    paragraphs.push_back({XXH3_64bits(paragraph.data(), paragraph.size()), characters_of(paragraph)});
    paragraph_begin = text.npos;
  };
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_outer_space(text.substr(begin, end - begin));
    if (line.empty()) {
      end_paragraph();
      continue;
    }
    lines.push_back({XXH3_64bits(line.data(), line.size()), characters_of(line)});
    measures.bullet_lines += begins_with_bullet(line);
    measures.ellipsis_lines += line.ends_with(kDots) || line.ends_with(kEllipsis);
    if (paragraph_begin == text.npos) paragraph_begin = begin;
    paragraph_end = end;
  }
  end_paragraph();
  measures.lines = lines.size();
  measures.paragraphs = paragraphs.size();
  const auto count = [&](const std::vector<Part>& parts, std::size_t& duplicates, std::size_t& characters) {
    start_table(parts.size());
    for (const Part& part : parts) {
      if (add(part.hash) == 1) continue;
      ++duplicates;
      characters += part.characters;
    }
  };
  count(lines, measures.duplicate_lines, measures.duplicate_line_characters);
  count(paragraphs, measures.duplicate_paragraphs, measures.duplicate_paragraph_characters);
}

namespace {

/// The hash of words in a row: that of the words one longer at its end and one shorter at its front follows from it.
class RollingHash {
 public:
  explicit RollingHash(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) front_ *= kFactor;
  }
  void push(std::uint64_t hash) { sum_ = (sum_ + hash) * kFactor; }
  void pop(std::uint64_t hash) { sum_ -= hash * front_; }
  std::uint64_t value() const { return (sum_ ^ sum_ >> 29) * 0xBF58476D1CE4E5B9u; }

 private:
  static constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u;
  std::uint64_t front_ = 1, sum_ = 0;
};

}  // namespace

/// Characters of all occurrences of the n-gram that occurs most often, spaces included; of several the first to come
/// that often. 0 if none occurs twice.
void DocumentMeter::count_top(std::size_t n, std::size_t& characters) {
  if (words_.size() < n) return;
  start_table(words_.size());
  RollingHash hash(n);
  std::size_t length = n - 1;
  std::uint32_t most = 1;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    hash.push(words_[i].hash);
    length += words_[i].characters;
    if (i + 1 < n) continue;
    if (const std::uint32_t count = add(hash.value()); count > most) {
      most = count;
      characters = count * length;
    }
    hash.pop(words_[i + 1 - n].hash);
    length -= words_[i + 1 - n].characters;
  }
}

/// Characters of n-grams that were there before, without spaces; after one of these the next begins behind it.
void DocumentMeter::count_duplicates(std::size_t n, std::size_t& characters) {
  if (words_.size() < n) return;
  start_table(words_.size());
  RollingHash hash(n);
  std::size_t length = 0, skip_until = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    hash.push(words_[i].hash);
    length += words_[i].characters;
    if (i + 1 < n) continue;
    const std::size_t first = i + 1 - n;
    if (first >= skip_until && add(hash.value()) > 1) {
      characters += length;
      skip_until = first + n;
    }
    hash.pop(words_[first].hash);
    length -= words_[first].characters;
  }
}

DocumentMeasures DocumentMeter::measure(std::string_view text) {
  DocumentMeasures measures;
  measures.characters = characters_of(text);
  measures.hashes = static_cast<std::size_t>(std::count(text.begin(), text.end(), '#'));
  measures.ellipses = occurrences(text, kDots) + occurrences(text, kEllipsis);
  measures.javascript = has_javascript(text);
  read_words(text, measures);
  read_lines(text, measures);
  for (std::size_t n = 2; n <= 4; ++n) count_top(n, measures.top_characters[n - 2]);
  for (std::size_t n = 5; n <= 10; ++n) count_duplicates(n, measures.duplicate_characters[n - 5]);
  return measures;
}

}  // namespace megatron
