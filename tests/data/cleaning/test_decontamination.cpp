#include "data/cleaning/decontamination.h"

#include <algorithm>

#include "cleaning_support.h"
#include "support/catch.h"
#include "support/require_error.h"

namespace megatron::test {

namespace {

using Texts = std::vector<std::string>;

/// "Sentence one is here." and so on: 30 characters each with the space after it.
std::string sentences(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) text += fmt::format("The filler sentence no {:05}. ", i);
  return text;
}

const std::string kTask =
    "In my palm is a clear stone, and inside it is a small ivory statuette of an angel";  // 18 words
const std::string kQuestion = "what is the highest mountain in the whole of Africa";      // 10 words

NgramIndex index_of(const Texts& tasks, const NgramRule& rule = {}) {
  NgramIndex index(rule);
  for (const std::string& task : tasks) index.add_task(task);
  return index;
}

Texts parts_of(const CutDocument& cut) {
  return {cut.parts.begin(), cut.parts.end()};
}

NgramRule compat() {
  NgramRule rule;
  rule.compat = true;
  return rule;
}

}  // namespace

TEST_CASE("n-grams: all of long tasks, one of short ones") {
  CHECK(index_of({kTask}).size() == 6);
  CHECK(index_of({kTask, kTask, "IN MY PALM is a clear stone and inside it is a small"}).size() == 6);
  CHECK(index_of({kQuestion}).size() == 1);
  CHECK(index_of({"only seven words are in this text"}).size() == 0);
  CHECK(index_of({"a text of eight words is the shortest"}).size() == 1);
  require_error(ErrorKind::configuration, {"n-grams of 9 to 8 words"}, [] { NgramIndex(NgramRule{9, 8}); });
  require_error(ErrorKind::configuration, {"n-grams of 0 to 8 words"}, [] { NgramIndex(NgramRule{0, 8}); });
}

TEST_CASE("n-grams: words are in lower case, by letters, digits and marks") {
  const NgramIndex index(NgramRule{});
  const std::string text = "Ça, l'ÉTÉ_2!\xFF नमस्ते";
  std::vector<std::string> words;
  for (const TextWord& word : index.words(text)) words.push_back(text.substr(word.begin, word.end - word.begin));
  CHECK(words == std::vector<std::string>{"Ça", "l", "ÉTÉ_2", "नमस्ते"});
  CHECK(index.words("ÉTÉ")[0].hash == index.words("été")[0].hash);
  CHECK(index.words("ÉTÉ")[0].characters == 3);
  CHECK(NgramIndex(compat()).words("नमस्ते").size() == 2);  // as Python's re
}

TEST_CASE("decontamination: a clean document stays as it is") {
  NgramIndex index = index_of({kTask, kQuestion});
  for (const std::string& text : {sentences(0, 30), std::string("short"), std::string()}) {
    const CutDocument cut = cut_contamination(text, index);
    CHECK(parts_of(cut) == Texts{text});
    CHECK(cut.matches.empty());
  }
}

TEST_CASE("decontamination: cut from sentence to sentence around 200 characters") {
  // 20 sentences of 30 characters, the match, and 20 more. 200 characters before it is inside the 14th: its left part
  // ends with the 13th. 200 characters after it is inside the 7th that follows: the right part begins behind that.
  for (const NgramRule& rule : {NgramRule{}, compat()}) {
    NgramIndex index = index_of({kQuestion}, rule);
    const std::string left = sentences(0, 20), right = ". " + sentences(20, 20);
    const std::string text = left + "What is the highest mountain in the whole of AFRICA" + right;
    const CutDocument cut = cut_contamination(text, index);
    Texts expected = {sentences(0, 13), " " + sentences(27, 13)};
    expected[0].pop_back();
    CHECK(parts_of(cut) == expected);
    CHECK(cut.matches == std::vector<std::string_view>{"What is the highest mountain in the whole of AFRICA"});
  }
}

TEST_CASE("decontamination: context is counted in characters") {
  NgramIndex index = index_of({kQuestion});
  std::string wide;
  for (int i = 0; i < 150; ++i) wide += "é";
  // 201 characters before the match, 351 bytes: a full stop that is 200 before it ends the left part.
  const std::string kept = sentences(0, 10) + "Kept.";
  const std::string near = kept + wide + std::string(49, ' ') + kQuestion;
  CHECK(parts_of(cut_contamination(near, index)) == Texts{kept});
  const std::string nearer = kept + wide + std::string(48, ' ') + kQuestion;  // 199: the full stop before that one
  Texts before = {sentences(0, 10)};
  before[0].pop_back();
  CHECK(parts_of(cut_contamination(nearer, index)) == before);
}

TEST_CASE("decontamination: parts of 200 characters are dropped, of 201 stay") {
  NgramIndex index = index_of({kQuestion});
  for (const std::size_t characters : {200, 201}) {
    const std::string part = std::string(characters - 1, 'x') + ".";
    const std::string text = part + std::string(200, ' ') + kQuestion + std::string(200, ' ') + "." + part;
    const CutDocument cut = cut_contamination(text, index);
    CHECK(parts_of(cut) == (characters > 200 ? Texts{part, part} : Texts{}));
    CHECK(cut.matches.size() == 1);
    CHECK_FALSE(cut.too_many_parts);
  }
}

TEST_CASE("decontamination: more than ten parts drop the document") {
  NgramIndex index = index_of({kQuestion});
  for (const int matches : {9, 10}) {
    std::string text = sentences(0, 20);
    for (int i = 0; i < matches; ++i) text += kQuestion + ". " + sentences(20 * (i + 1), 25);
    const CutDocument cut = cut_contamination(text, index);
    CHECK(cut.matches.size() == static_cast<std::size_t>(matches));
    CHECK(cut.too_many_parts == (matches == 10));
    CHECK(cut.parts.size() == (matches == 10 ? 0 : 10));
  }
}

TEST_CASE("decontamination: shorter n-grams at all places; Megatron's gaps") {
  const std::string nine = "one two three four five six seven eight nine";
  const std::string few = "x a b " + nine;         // twelve words: Megatron searches none
  const std::string end = "x a b c " + nine;       // thirteen: at the beginning only
  const std::string longer = "x a b c d " + nine;  // fourteen: the last window at all places
  for (const std::string& text : {few, end, longer}) {
    NgramIndex ours = index_of({nine}), theirs = index_of({nine}, compat());
    CHECK(ours.find(ours.words(text)).has_value());
    CHECK(theirs.find(theirs.words(text)).has_value() == (text == longer));
  }
  NgramIndex theirs = index_of({nine}, compat());
  CHECK(theirs.find(theirs.words(nine + " x a b c")).has_value());
}

TEST_CASE("decontamination: of n-grams at one place the longest is cut") {
  const std::string eight = "one two three four five six seven eight", ten = eight + " nine ten";
  for (const bool is_compat : {false, true}) {
    NgramRule rule;
    rule.compat = is_compat;
    NgramIndex index = index_of({eight, ten}, rule);
    const auto match = index.find(index.words("zero " + ten + " a b c d e f"));
    REQUIRE(match);
    CHECK(match->first == 1);
    CHECK(match->words == (is_compat ? 8 : 10));
  }
}

TEST_CASE("decontamination: phrases of ten documents and more stay") {
  for (const bool is_compat : {false, true}) {
    NgramRule rule;
    rule.compat = is_compat;
    NgramIndex index = index_of({kQuestion, kTask}, rule);
    const std::string common = kQuestion + ". " + sentences(0, 3) + kQuestion;  // twice, and counted once
    for (int i = 0; i < 10; ++i) index.count(common);
    for (int i = 0; i < 9; ++i) index.count(kTask + ", I say.");
    CHECK(index.counts()[0] == 10);
    CHECK(index.counts()[1] == 9);
    CHECK(index.keep_rare() == 1);
    CHECK(cut_contamination(common, index).matches.empty());
    CHECK(cut_contamination(kTask + ", I say.", index).matches.size() == 1);
  }
}

TEST_CASE("decontamination: all n-grams of a document are counted") {
  NgramIndex ours = index_of({kTask}), theirs = index_of({kTask}, compat());
  for (NgramIndex* index : {&ours, &theirs}) index->count("Look: " + kTask + " of stone");
  CHECK(std::vector<std::uint64_t>(ours.counts().begin(), ours.counts().end()) ==
        std::vector<std::uint64_t>{1, 1, 1, 1, 1, 1});
  // Megatron continues after the n-gram: seven words are left, too few for another one.
  CHECK(std::vector<std::uint64_t>(theirs.counts().begin(), theirs.counts().end()) ==
        std::vector<std::uint64_t>{1, 0, 0, 0, 0, 0});
}

TEST_CASE("decontamination: ranks add their counts up") {
  NgramIndex index = index_of({kQuestion});
  index.count(kQuestion);
  index.counts()[0] += 9;  // other ranks'
  CHECK(index.keep_rare() == 1);
  CHECK(index.size() == 0);
}

TEST_CASE("decontamination: contaminated from end to end, in linear time") {
  NgramIndex index = index_of({kQuestion});
  std::string text;
  for (int i = 0; i < 20000; ++i) text += kQuestion + ". ";
  const CutDocument cut = cut_contamination(text, index);
  CHECK(cut.parts.empty());
  CHECK(cut.matches.size() > 1000);
}

}  // namespace megatron::test
