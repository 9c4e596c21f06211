#include "data/cleaning/quality_rules.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

using Value = std::optional<double>;
using Measures = DocumentMeasures;

double ratio(std::size_t part, std::size_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::size_t>(whole, 1));
}

/// The share of characters in n-grams of words: the most frequent one (2 to 4), or all that were there before (5 to
/// 10).
template <std::size_t n>
Value top_share(const Measures& measures, double /*threshold*/) {
  return ratio(measures.top_characters[n - 2], measures.characters);
}
template <std::size_t n>
Value duplicate_share(const Measures& measures, double /*threshold*/) {
  return ratio(measures.duplicate_characters[n - 5], measures.characters);
}

constexpr std::size_t kCharactersPerToken = 8;

Value tokens_of_short(const Measures& measures, double threshold) {
  if (!measures.tokens || static_cast<double>(measures.characters) >= kCharactersPerToken * threshold) return {};
  return static_cast<double>(measures.tokens());
}
Value characters_of_javascript(const Measures& measures, double /*threshold*/) {
  if (!measures.javascript) return {};
  return static_cast<double>(measures.characters);
}
Value characters_of_foreign(const Measures& measures, double /*threshold*/) {
  if (measures.language.empty() || measures.language == "en") return {};
  return static_cast<double>(measures.characters);
}

template <auto part>
Value number(const Measures& measures, double /*threshold*/) {
  return static_cast<double>(measures.*part);
}
template <auto part, auto whole>
Value share(const Measures& measures, double /*threshold*/) {
  return ratio(measures.*part, measures.*whole);
}

constexpr RuleGroup kQuality = RuleGroup::quality, kRepetition = RuleGroup::repetition, kMegatron = RuleGroup::megatron;
constexpr bool kLeast = true, kMost = false, kOn = true, kOff = false;

constexpr QualityRule kRules[] = {
    {"min_words", kQuality, kLeast, 50, kOn, "words, parted by white space", number<&Measures::words>},
    {"max_words", kQuality, kMost, 100'000, kOn, "words, parted by white space", number<&Measures::words>},
    {"min_mean_word", kQuality, kLeast, 3, kOn, "mean characters of a word",
     share<&Measures::word_characters, &Measures::words>},
    {"max_mean_word", kQuality, kMost, 10, kOn, "mean characters of a word",
     share<&Measures::word_characters, &Measures::words>},
    {"max_hash_ratio", kQuality, kMost, 0.1, kOn, "number signs per word", share<&Measures::hashes, &Measures::words>},
    {"max_ellipsis_ratio", kQuality, kMost, 0.1, kOn, "ellipses per word",
     share<&Measures::ellipses, &Measures::words>},
    {"max_bullet_lines", kQuality, kMost, 0.9, kOn, "share of lines that begin with a bullet, '-' or '*'",
     share<&Measures::bullet_lines, &Measures::lines>},
    {"max_ellipsis_lines", kQuality, kMost, 0.3, kOn, "share of lines that end with an ellipsis",
     share<&Measures::ellipsis_lines, &Measures::lines>},
    {"min_letter_words", kQuality, kLeast, 0.8, kOn, "share of words that have a letter",
     share<&Measures::letter_words, &Measures::words>},
    {"min_stop_words", kQuality, kLeast, 2, kOn,
     "different words of: the, be, to, of, and, that, have, with; for English only", number<&Measures::stop_words>},

    {"max_duplicate_lines", kRepetition, kMost, 0.3, kOn, "share of lines that were there before",
     share<&Measures::duplicate_lines, &Measures::lines>},
    {"max_duplicate_line_characters", kRepetition, kMost, 0.2, kOn, "share of characters in such lines",
     share<&Measures::duplicate_line_characters, &Measures::characters>},
    {"max_duplicate_paragraphs", kRepetition, kMost, 0.3, kOn, "share of paragraphs that were there before",
     share<&Measures::duplicate_paragraphs, &Measures::paragraphs>},
    {"max_duplicate_paragraph_characters", kRepetition, kMost, 0.2, kOn, "share of characters in such paragraphs",
     share<&Measures::duplicate_paragraph_characters, &Measures::characters>},
    {"max_top_2_gram", kRepetition, kMost, 0.20, kOn, "share of characters in the most frequent 2 words in a row",
     top_share<2>},
    {"max_top_3_gram", kRepetition, kMost, 0.18, kOn, "share of characters in the most frequent 3 words in a row",
     top_share<3>},
    {"max_top_4_gram", kRepetition, kMost, 0.16, kOn, "share of characters in the most frequent 4 words in a row",
     top_share<4>},
    {"max_duplicate_5_grams", kRepetition, kMost, 0.15, kOn,
     "share of characters in 5 words in a row that were there before", duplicate_share<5>},
    {"max_duplicate_6_grams", kRepetition, kMost, 0.14, kOn, "the same of 6 words", duplicate_share<6>},
    {"max_duplicate_7_grams", kRepetition, kMost, 0.13, kOn, "the same of 7 words", duplicate_share<7>},
    {"max_duplicate_8_grams", kRepetition, kMost, 0.12, kOn, "the same of 8 words", duplicate_share<8>},
    {"max_duplicate_9_grams", kRepetition, kMost, 0.11, kOn, "the same of 9 words", duplicate_share<9>},
    {"max_duplicate_10_grams", kRepetition, kMost, 0.10, kOn, "the same of 10 words", duplicate_share<10>},

    {"min_tokens", kMegatron, kLeast, 128, kOff,
     "tokens of a document of less than 8 times as many characters (cleanup_dataset.py)", tokens_of_short},
    {"min_characters", kMegatron, kLeast, 512, kOff, "characters (remove_512)", number<&Measures::characters>},
    {"min_javascript_characters", kMegatron, kLeast, 256, kOff,
     "characters of a document that says 'javascript' (remove_256_javascript)", characters_of_javascript},
    {"min_foreign_characters", kMegatron, kLeast, 512, kOff,
     "characters of a document whose language is not English (remove_512_non_english)", characters_of_foreign},
};

}  // namespace

std::span<const QualityRule> quality_rules() {
  return kRules;
}

std::vector<std::optional<double>> default_thresholds() {
  std::vector<std::optional<double>> thresholds;
  for (const QualityRule& rule : kRules) thresholds.push_back(rule.on ? std::optional(rule.threshold) : std::nullopt);
  return thresholds;
}

std::optional<Violation> first_violation(const DocumentMeasures& measures,
                                         std::span<const std::optional<double>> thresholds) {
  internal_check(thresholds.size() == std::size(kRules), "one threshold for each rule", thresholds.size());
  for (std::size_t i = 0; i < std::size(kRules); ++i) {
    if (!thresholds[i]) continue;
    const std::optional<double> value = kRules[i].value(measures, *thresholds[i]);
    if (!value) continue;
    const bool kept = kRules[i].least ? *value >= *thresholds[i] : *value <= *thresholds[i];
    if (!kept) return Violation{&kRules[i], *value};
  }
  return {};
}

}  // namespace megatron
