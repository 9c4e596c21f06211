#include "data/cleaning/decontamination.h"

#include <algorithm>

#include "base/text/utf8.h"
#include "data/cleaning/ascii.h"

namespace megatron {

namespace {

bool ends_sentence(char c) {
  return c == '.' || c == '!' || c == '?';
}

bool has_more(std::string_view text, std::size_t characters) {
  if (text.size() <= characters) return false;
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size() && count <= characters; ++i) count += !continues_character(text[i]);
  return count > characters;
}

/// The place this number of characters before or after one; the text's ends are the limit.
std::size_t before(std::string_view text, std::size_t place, std::size_t characters) {
  for (; characters > 0 && place > 0; --characters) {
    do --place;
    while (place > 0 && continues_character(text[place]));
  }
  return place;
}
std::size_t after(std::string_view text, std::size_t place, std::size_t characters) {
  for (; characters > 0 && place < text.size(); --characters) {
    do ++place;
    while (place < text.size() && continues_character(text[place]));
  }
  return place;
}

}  // namespace

CutDocument cut_contamination(std::string_view text, NgramIndex& index, const CutRule& rule) {
  CutDocument cut;
  const std::vector<TextWord> all = index.words(text);
  std::span<const TextWord> words = all;
  std::size_t begin = 0;  // the text from here on has not been searched
  while (const std::optional<NgramMatch> match = index.find(words)) {
    const std::span<const TextWord> found = words.subspan(match->first, match->words);
    const std::size_t match_begin = found.front().begin, match_end = found.back().end;
    cut.matches.push_back(text.substr(match_begin, match_end - match_begin));

    std::size_t left = before(text.substr(begin), match_begin - begin, rule.context) + begin;
    while (left > begin && !ends_sentence(text[left])) --left;
    const std::string_view part = left > begin ? text.substr(begin, left + 1 - begin) : std::string_view();
    if (has_more(part, rule.least_part)) cut.parts.push_back(part);

    std::size_t right = after(text, match_end, rule.context);
    if (index.rule().compat) {
      std::size_t characters = match->words - 1 + rule.context;
      for (const TextWord& word : found) characters += word.characters;
      right = after(text, match_begin, characters);
    }
    while (right < text.size() && !ends_sentence(text[right])) ++right;
    begin = std::min(right + 1, text.size());
    if (!has_more(text.substr(begin), rule.least_part)) {
      begin = text.size();
      break;
    }
    words = words.subspan(match->first);
    const auto next =
        std::find_if(words.begin(), words.end(), [&](const TextWord& word) { return word.begin >= begin; });
    words = words.subspan(static_cast<std::size_t>(next - words.begin()));
  }
  if (begin < text.size() || cut.matches.empty()) cut.parts.push_back(text.substr(begin));
  if (cut.parts.size() > rule.most_parts) {
    cut.too_many_parts = true;
    cut.parts.clear();
  }
  return cut;
}

}  // namespace megatron
