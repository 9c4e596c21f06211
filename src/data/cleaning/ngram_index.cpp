#include "data/cleaning/ngram_index.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/core/error.h"
#include "base/text/utf8.h"
#include "data/unicode/bert_characters.h"
#include "data/unicode/character_classes.h"

namespace megatron {

namespace {

constexpr std::size_t kNone = ~std::size_t{0}, kFilterBitsPerNgram = 16;

/// \w of split patterns, or of Python's `re`, for which marks are no part of words.
bool is_word(std::uint32_t c, bool with_marks) {
  const CharacterClasses& classes = CharacterClasses::instance();
  if (with_marks) return classes.is_word(c);
  const CharacterClass of = classes.of(c);
  return of == CharacterClass::letter || of == CharacterClass::digit || c == '_';
}

/// The word that begins at `begin`; empty if none does.
TextWord word_at(std::string_view text, std::size_t begin, bool with_marks, std::string& lower) {
  TextWord word{0, begin, begin, 0};
  lower.clear();
  while (word.end < text.size()) {
    const char byte = text[word.end];
    if (const char small = static_cast<char>(byte | 0x20); small >= 'a' && small <= 'z') {
      lower += small;
      ++word.characters;
      ++word.end;
      continue;
    }
    const CodePoint point = first_code_point(text.substr(word.end));
    if (point.bytes == 0 || !is_word(point.value, with_marks)) break;
    BertCharacters::instance().lower(point.value, [&](std::uint32_t c) {
      append_utf8(lower, c);
      ++word.characters;
    });
    word.end += point.bytes;
  }
  word.hash = XXH3_64bits(lower.data(), lower.size());
  return word;
}

}  // namespace

NgramIndex::NgramIndex(const NgramRule& rule) : rule_(rule) {
  verify(rule.shortest >= 1 && rule.shortest <= rule.longest, ErrorKind::configuration,
         "n-grams of {} to {} words: the shortest have at least one and no more than the longest", rule.shortest,
         rule.longest);
}

std::vector<TextWord> NgramIndex::words(std::string_view text) const {
  std::vector<TextWord> found;
  std::string lower;
  for (std::size_t at = 0; at < text.size();) {
    const TextWord word = word_at(text, at, !rule_.compat, lower);
    if (word.end > at) found.push_back(word);
    at = word.end + (word.end > at ? 0 : 1);  // the byte after a word is none; inside a character none begins
  }
  return found;
}

void NgramIndex::add_task(std::string_view text) {
  const std::vector<TextWord> all = words(text);
  if (all.size() < rule_.shortest) return;
  const std::size_t length = std::min(all.size(), rule_.longest);
  for (std::size_t first = 0; first + length <= all.size(); ++first) {
    window_.clear();
    for (std::size_t i = first; i < first + length; ++i) window_.push_back(all[i].hash);
    const auto [entry, is_new] =
        index_.try_emplace(XXH3_64bits(window_.data(), length * sizeof window_[0]), counts_.size());
    if (!is_new) continue;
    begins_.push_back(XXH3_64bits(window_.data(), rule_.shortest * sizeof window_[0]));
    counts_.push_back(0);
    counted_in_.push_back(0);
    length_of_.push_back(length);
  }
  filter_.clear();
}

void NgramIndex::make_filter() {
  filter_.assign(std::bit_ceil(std::max<std::size_t>(index_.size() * kFilterBitsPerNgram, 64)), false);
  lengths_.clear();
  for (const auto& [hash, ngram] : index_) {
    filter_[begins_[ngram] & (filter_.size() - 1)] = true;
    lengths_.push_back(length_of_[ngram]);
  }
  std::sort(lengths_.begin(), lengths_.end());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

/// Whether an n-gram may begin there, by its first `shortest` words.
bool NgramIndex::may_begin(std::span<const TextWord> words, std::size_t first) {
  window_.clear();
  for (const TextWord& word : words.subspan(first, rule_.shortest)) window_.push_back(word.hash);
  const std::uint64_t begin = XXH3_64bits(window_.data(), rule_.shortest * sizeof window_[0]);
  return filter_[begin & (filter_.size() - 1)];
}

/// The number of the n-gram of these words, or kNone.
std::size_t NgramIndex::at(std::span<const TextWord> words, std::size_t first, std::size_t count) {
  window_.clear();
  for (const TextWord& word : words.subspan(first, count)) window_.push_back(word.hash);
  const auto found = index_.find(XXH3_64bits(window_.data(), count * sizeof window_[0]));
  return found == index_.end() ? kNone : found->second;
}

std::optional<NgramMatch> NgramIndex::find(std::span<const TextWord> words) {
  if (filter_.empty()) make_filter();
  if (rule_.compat) return find_in_order(words);
  for (std::size_t first = 0; first + rule_.shortest <= words.size(); ++first) {
    if (!may_begin(words, first)) continue;
    for (auto length = lengths_.rbegin(); length != lengths_.rend(); ++length) {
      if (first + *length <= words.size() && at(words, first, *length) != kNone) return NgramMatch{first, *length};
    }
  }
  return {};
}

/// Megatron's order.
std::optional<NgramMatch> NgramIndex::find_in_order(std::span<const TextWord> words) {
  const std::size_t longest = rule_.longest;
  for (std::size_t first = 0; first + longest <= words.size(); ++first) {
    if (!may_begin(words, first)) continue;
    if (at(words, first, longest) != kNone) return NgramMatch{first, longest};
    for (const std::size_t length : lengths_) {
      if (at(words, first, length) != kNone) return NgramMatch{first, length};
    }
  }
  if (words.size() <= longest) return {};
  for (const std::size_t length : lengths_) {
    for (std::size_t first = words.size() - longest; length < longest && first + length <= words.size(); ++first) {
      if (at(words, first, length) != kNone) return NgramMatch{first, length};
    }
  }
  return {};
}

void NgramIndex::count_once(std::size_t ngram) {
  if (counted_in_[ngram] == documents_) return;
  counted_in_[ngram] = documents_;
  ++counts_[ngram];
}

void NgramIndex::count(std::string_view document) {
  if (filter_.empty()) make_filter();
  ++documents_;
  if (rule_.compat) return count_in_order(document);
  const std::vector<TextWord> all = words(document);
  std::span<const TextWord> rest = all;
  while (const std::optional<NgramMatch> match = find(rest)) {
    for (const std::size_t length : lengths_) {
      const std::size_t ngram = match->first + length <= rest.size() ? at(rest, match->first, length) : kNone;
      if (ngram != kNone) count_once(ngram);
    }
    rest = rest.subspan(match->first + 1);
  }
}

/// Megatron continues where the n-gram would end if its words stood a space apart, which may be inside a word.
void NgramIndex::count_in_order(std::string_view document) {
  std::vector<TextWord> all = words(document);
  std::span<TextWord> rest = all;
  std::string lower;
  while (const std::optional<NgramMatch> match = find_in_order(rest)) {
    const std::span<const TextWord> found = rest.subspan(match->first, match->words);
    count_once(at(rest, match->first, match->words));
    std::size_t characters = match->words;  // the spaces, and one after it
    for (const TextWord& word : found) characters += word.characters;
    std::size_t next = found.front().begin;
    for (; characters > 0 && next < document.size(); --characters) {
      next += std::max<std::uint32_t>(first_code_point(document.substr(next)).bytes, 1);
    }
    rest = rest.subspan(match->first);
    while (!rest.empty() && rest.front().end <= next) rest = rest.subspan(1);
    if (!rest.empty() && rest.front().begin < next) rest.front() = word_at(document, next, false, lower);
  }
}

std::size_t NgramIndex::keep_rare() {
  filter_.clear();
  return std::erase_if(index_, [this](const auto& entry) { return counts_[entry.second] >= rule_.common; });
}

}  // namespace megatron
