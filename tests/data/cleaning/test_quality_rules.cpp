// Quality rules: each at both sides of its threshold, by documents made for it.
#include "data/cleaning/quality_rules.h"

#include <algorithm>
#include <cmath>

#include "data/cleaning/linear_work.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

const QualityRule& rule_named(std::string_view name) {
  const auto rules = quality_rules();
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const QualityRule& rule) { return rule.name == name; });
  REQUIRE(found != rules.end());
  return *found;
}

DocumentMeasures measures_of(std::string_view text) {
  DocumentMeter meter;
  return meter.measure(text);
}

std::optional<double> value_of(std::string_view name, std::string_view text) {
  const QualityRule& rule = rule_named(name);
  return rule.value(measures_of(text), rule.threshold);
}

/// Whether the rule alone, at its default, keeps the text.
bool keeps(std::string_view name, std::string_view text, std::string_view language = {}) {
  const auto rules = quality_rules();
  std::vector<std::optional<double>> thresholds(rules.size());
  const auto index = static_cast<std::size_t>(&rule_named(name) - rules.data());
  thresholds[index] = rules[index].threshold;
  DocumentMeasures measures = measures_of(text);
  measures.language = language;
  const auto violation = first_violation(measures, thresholds);
  if (violation) CHECK(violation->rule->name == name);
  return !violation;
}

/// `count` different words of `characters` each.
std::string words(std::size_t count, std::size_t characters = 5, std::string_view after = " ") {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    std::string word(characters, 'a');
    for (std::size_t at = 0, n = i; n > 0 && at < characters; ++at, n /= 26) word[at] = static_cast<char>('a' + n % 26);
    text.append(word).append(after);
  }
  return text;
}

std::string lines(std::size_t count, std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text.append(line).append("\n");
  return text;
}

}  // namespace

TEST_CASE("quality rules: words, their length and letters") {
  CHECK(keeps("min_words", words(50)));
  CHECK(!keeps("min_words", words(49)));
  CHECK(!keeps("min_words", ""));
  CHECK(keeps("max_words", words(100'000)));
  CHECK(!keeps("max_words", words(100'001)));
  CHECK(keeps("min_mean_word", "abc de\u00E9f ab"));
  CHECK(!keeps("min_mean_word", "abc d\u00E9 abc"));
  CHECK(keeps("max_mean_word", words(7, 10)));
  CHECK(!keeps("max_mean_word", words(7, 10) + "elevenchars"));
  CHECK(keeps("min_letter_words", "a b c \u0416 1"));
  CHECK(!keeps("min_letter_words", "a b c 1 2"));
  CHECK(measures_of("\u4E2D\u3000a\u00A0b\u2003c\td\n\n").words == 5);
}

TEST_CASE("quality rules: number signs, ellipses, bullets") {
  CHECK(keeps("max_hash_ratio", words(9) + "#one"));
  CHECK(!keeps("max_hash_ratio", words(8) + "##"));
  CHECK(keeps("max_ellipsis_ratio", words(18) + "one... \u2026"));
  CHECK(!keeps("max_ellipsis_ratio", words(17) + "one... \u2026"));
  CHECK(measures_of("......").ellipses == 2);
  CHECK(keeps("max_bullet_lines", lines(9, "  - item") + "no item"));
  CHECK(!keeps("max_bullet_lines", lines(5, "\u2022 item") + lines(5, "* item")));
  CHECK(keeps("max_ellipsis_lines", lines(3, "more... ") + lines(7, "end.")));
  CHECK(!keeps("max_ellipsis_lines", lines(2, "more\u2026") + lines(2, "more...") + lines(6, "end.")));
}

TEST_CASE("quality rules: stop words are counted once each, in any case") {
  CHECK(keeps("min_stop_words", "The cat, (and) more"));
  CHECK(!keeps("min_stop_words", "the the THE them thenand"));
  CHECK(measures_of("the be to of and that have with The Be").stop_words == 8);
}

TEST_CASE("quality rules: lines and paragraphs that were there before") {
  CHECK(keeps("max_duplicate_lines",
              lines(4, "same") + lines(1, "a") + lines(1, "b") + lines(1, "c") + lines(1, "d") + lines(1, "e") + "f"));
  CHECK(!keeps("max_duplicate_lines",
               lines(5, " same ") + lines(1, "a") + lines(1, "b") + lines(1, "c") + lines(1, "d") + "e"));
  // 5 of 25 characters, then 6 of 26.
  CHECK(keeps("max_duplicate_line_characters", "12345\n12345\nabcdefghijklm"));
  CHECK(!keeps("max_duplicate_line_characters", "123456\n123456\nabcdefghijkl"));
  const std::string paragraph = "one\ntwo\n\n";
  CHECK(measures_of(paragraph + paragraph + " \n" + "one\n").paragraphs == 3);
  CHECK(measures_of(paragraph + paragraph + "one\n").duplicate_paragraphs == 1);
  CHECK(measures_of(paragraph + paragraph + "one\n").duplicate_paragraph_characters == 7);
  CHECK(keeps("max_duplicate_paragraphs", "a\n\na\n\nb\n\nc"));
  CHECK(!keeps("max_duplicate_paragraphs", "a\n\na\n\nb"));
  CHECK(keeps("max_duplicate_paragraph_characters", "ab\n\nab\n\n" + std::string(6, 'c') + "\n\n"));
  CHECK(!keeps("max_duplicate_paragraph_characters", "abc\n\nabc\n\ncde"));
}

TEST_CASE("quality rules: the most frequent words in a row") {
  // "ab cd" twice: 10 of 50 characters, then of 49.
  CHECK(keeps("max_top_2_gram", "ab cd x ab cd " + std::string(36, 'z')));
  CHECK(!keeps("max_top_2_gram", "ab cd x ab cd " + std::string(35, 'z')));
  CHECK(measures_of("a b c d e").top_characters[0] == 0);
  CHECK(measures_of("aa bb cc aa bb cc").top_characters[0] == 10);
  CHECK(measures_of("aa bb cc aa bb cc").top_characters[1] == 16);
  CHECK(measures_of("aa bb cc aa bb cc").top_characters[2] == 0);
  CHECK(keeps("max_top_3_gram", "a b c x a b c " + std::string(42, 'z')));       // 10 of 56
  CHECK(!keeps("max_top_3_gram", "a b c x a b c " + std::string(41, 'z')));      // 10 of 55
  CHECK(keeps("max_top_4_gram", "a b c d x a b c d " + std::string(70, 'z')));   // 14 of 88
  CHECK(!keeps("max_top_4_gram", "a b c d x a b c d " + std::string(69, 'z')));  // 14 of 87
}

TEST_CASE("quality rules: words in a row that were there before") {
  for (std::size_t n = 5; n <= 10; ++n) {
    const std::string name = "max_duplicate_" + std::to_string(n) + "_grams";
    const double threshold = rule_named(name).threshold;
    CHECK(std::abs(threshold - (0.20 - 0.01 * static_cast<double>(n))) < 1e-12);
    const std::string again = words(n, 10);  // 10 n characters without spaces
    const auto length = static_cast<std::size_t>(static_cast<double>(10 * n) / threshold);
    const std::string base = again + "x " + again;
    CHECK(keeps(name, base + std::string(length + 1 - base.size(), 'z')));
    CHECK(!keeps(name, base + std::string(length - 1 - base.size(), 'z')));
    CHECK(value_of(name, words(n - 1, 10) + "x " + words(n - 1, 10)) == 0);
  }
  // After a repetition the next one begins behind it: 15 equal words are 3 of 5, the first of which is new.
  CHECK(measures_of(lines(15, "a")).duplicate_characters[0] == 10);
}

TEST_CASE("quality rules: those of Megatron's tools, off by default") {
  CHECK(keeps("min_characters", std::string(512, 'a')));
  CHECK(!keeps("min_characters", std::string(511, 'a')));
  CHECK(keeps("min_javascript_characters", "Enable JavaScript." + std::string(238, 'a')));
  CHECK(!keeps("min_javascript_characters", "Enable JavaScript." + std::string(237, 'a')));
  CHECK(keeps("min_javascript_characters", "short"));
  CHECK(keeps("min_foreign_characters", "kurz", "en"));
  CHECK(keeps("min_foreign_characters", "kurz"));
  CHECK(!keeps("min_foreign_characters", "kurz", "de"));
  CHECK(keeps("min_foreign_characters", std::string(512, 'a'), "de"));
  for (const QualityRule& rule : quality_rules()) CHECK(rule.on == (rule.group != RuleGroup::megatron));
}

TEST_CASE("quality rules: tokens are counted of short documents only") {
  const QualityRule& rule = rule_named("min_tokens");
  const auto value = [&](std::size_t characters, std::size_t tokens) {
    DocumentMeasures measures = measures_of(std::string(characters, 'a'));
    measures.tokens = [tokens] { return tokens; };
    return rule.value(measures, rule.threshold);
  };
  CHECK(value(1023, 127) == 127);
  CHECK(!value(1024, 127));
  CHECK(!rule.value(measures_of("short"), rule.threshold));  // no tokenizer
}

TEST_CASE("quality rules: the first that drops a text is named, with its value") {
  const auto violation = first_violation(measures_of("#a #b"), default_thresholds());
  REQUIRE(violation);
  CHECK(violation->rule->name == "min_words");
  CHECK(violation->value == 2);
  auto thresholds = default_thresholds();
  thresholds[0].reset();
  thresholds[2].reset();
  CHECK(first_violation(measures_of("#a #b"), thresholds)->rule->name == "max_hash_ratio");
  CHECK(thresholds.size() == quality_rules().size());
}

TEST_CASE("quality rules: hostile documents, in linear work") {
  for (const std::string_view part :
       {"a "sv, "\n"sv, "\0"sv, "\xFF"sv, "#"sv, ".."sv, "aaaa"sv, " \n \n"sv, "the of "sv, "\xE2\x80"sv}) {
    require_linear(part, 12, [](const std::string& text) {
      DocumentMeter meter;
      first_violation(meter.measure(text), default_thresholds());
      return meter.work() + 1;
    });
  }
  // The memory that a meter keeps has no part in its results.
  DocumentMeter meter;
  meter.measure(words(1000));
  CHECK(meter.measure("aa bb cc aa bb cc").top_characters[0] == 10);
}
