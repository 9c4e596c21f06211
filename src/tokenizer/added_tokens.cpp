#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "characters/character_classes.h"
#include "characters/unicode_tables.h"
#include "text/utf8.h"

namespace megatron {

namespace {

/// The code point that ends where the text ends; 0 bytes if that is not valid UTF-8.
CodePoint last_code_point(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const CodePoint c = first_code_point(text.substr(text.size() - bytes));
    if (c.bytes == bytes) return c;
  }
  return {};
}

bool is_space(CodePoint c) {
  return c.bytes > 0 && CharacterClasses::instance().of(c.value) == CharacterClass::space;
}

bool is_word(CodePoint c) {
  if (c.bytes == 0) return false;
  const auto words = word_ranges();
  const auto after =
      std::upper_bound(words.begin(), words.end(), c.value,
                       [](std::uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != words.begin() && c.value <= std::prev(after)->last;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) ++first_byte_[static_cast<unsigned char>(token.content[0]) + 1u];
  for (std::size_t byte = 1; byte < first_byte_.size(); ++byte) first_byte_[byte] += first_byte_[byte - 1];
}

/// The longest token that the text, which is not empty, begins with; nullptr if none does.
const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const auto first = static_cast<unsigned char>(text[0]);
  const AddedToken *low = tokens_.data() + first_byte_[first], *high = tokens_.data() + first_byte_[first + 1u];
  const AddedToken* longest = nullptr;
  for (std::size_t length = 1; low != high;
       ++length) {  // low .. high: tokens that have `length` bytes in common with it
    if (low->content.size() == length) longest = low;
    while (low != high && low->content.size() == length) ++low;
    if (length == text.size()) break;
    const auto byte_of = [&](const AddedToken& token) { return static_cast<unsigned char>(token.content[length]); };
    const auto byte = static_cast<unsigned char>(text[length]);
    low = std::partition_point(low, high, [&](const AddedToken& token) { return byte_of(token) < byte; });
    high = std::partition_point(low, high, [&](const AddedToken& token) { return byte_of(token) == byte; });
  }
  return longest;
}

AddedTokens::Match AddedTokens::next(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first_byte_[first] == first_byte_[first + 1u]) continue;
    if (const AddedToken* token = longest_at(text.substr(at))) return {token, at, at + token->content.size()};
  }
  return {};
}

bool AddedTokens::is_taken(std::string_view text, const Match& match, bool special_tokens) {
  if (match.token->special && !special_tokens) return false;
  if (!match.token->single_word) return true;
  return !is_word(last_code_point(text.substr(0, match.begin))) &&
         !is_word(first_code_point(text.substr(match.end, 4)));
}

/// With the spaces that the token takes, those of an earlier token excepted (`done`).
AddedTokens::Place AddedTokens::widened(std::string_view text, const Match& match, std::size_t done) {
  Place place{match.begin, match.end};
  if (match.token->lstrip) {
    while (place.begin > done) {
      const CodePoint c = last_code_point(text.substr(0, place.begin));
      if (!is_space(c)) break;
      place.begin -= c.bytes;
    }
    place.begin = std::max(place.begin, done);
  }
  if (match.token->rstrip) {
    for (CodePoint c; is_space(c = first_code_point(text.substr(place.end, 4)));) place.end += c.bytes;
  }
  return place;
}

}  // namespace megatron
