// The beams' bookkeeping, with a table as the model: against a search through all texts, and by hand.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/core/philox.h"
#include "inference/decoding/beam_search.h"
#include "support/catch.h"

using namespace megatron;

namespace {

using Tokens = std::vector<std::int32_t>;
using Model = std::function<std::vector<double>(const Tokens&)>;
constexpr std::int64_t kVocab = 4;
constexpr std::int32_t kEnd = 3;

/// Random log-probabilities of what follows `text`.
std::vector<double> table(const Tokens& text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const std::int32_t token : text) hash = mix64(hash * 31 + static_cast<std::uint64_t>(token) + 1);
  std::vector<double> row;
  double sum = 0;
  for (std::uint32_t token = 0; token < kVocab; ++token) {
    row.push_back(philox4x32<7>({token, 0, 0, 0}, hash)[0] / 4294967296.0 * 3);
    sum += std::exp(row.back());
  }
  for (double& value : row) value -= std::log(sum);
  return row;
}

std::vector<float> rows_of(const std::vector<Tokens>& texts, const Model& model) {
  std::vector<float> logits;
  for (const Tokens& text : texts) {
    for (const double value : model(text)) logits.push_back(static_cast<float>(value + 2));  // any constant will do
  }
  return logits;
}

std::vector<Hypothesis> search(const BeamOptions& options, std::int64_t longest, const Model& model) {
  BeamSearch search(options);
  std::vector<Tokens> texts = {{}};
  for (std::int64_t i = 0; i < longest && !search.done(); ++i) {
    std::vector<Tokens> next;
    for (const BeamSearch::Choice& choice : search.advance(rows_of(texts, model), kVocab)) {
      next.push_back(texts[static_cast<std::size_t>(choice.beam)]);
      next.back().push_back(choice.token);
    }
    texts = next;
  }
  return search.finish();
}

/// All texts of up to `longest` tokens, the end token counted, with their scores.
void all_texts(const Tokens& text, double sum, std::int64_t longest, double penalty, const Tokens& ends,
               const Model& model, std::vector<Hypothesis>& out) {
  const auto length = static_cast<std::int64_t>(text.size());
  if (length == longest) {
    out.push_back({text, sum / std::pow(static_cast<double>(length), penalty), false});
    return;
  }
  const std::vector<double> row = model(text);
  for (std::int32_t token = 0; token < kVocab; ++token) {
    const double next = sum + row[static_cast<std::size_t>(token)];
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      out.push_back({text, next / std::pow(static_cast<double>(length + 1), penalty), true});
    } else {
      Tokens longer = text;
      longer.push_back(token);
      all_texts(longer, next, longest, penalty, ends, model, out);
    }
  }
}

}  // namespace

TEST_CASE("beam search: wide beams find the best of all texts") {
  for (const double penalty : {0.0, 0.6, 1.0, 2.0}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(penalty, seed);
      const Model model = [&](const Tokens& text) { return table(text, seed); };
      const std::int64_t longest = 5;
      std::vector<Hypothesis> all;
      const Tokens ends = seed % 2 == 0 ? Tokens{kEnd} : Tokens{kEnd, 1};
      all_texts({}, 0, longest, penalty, ends, model, all);
      std::stable_sort(all.begin(), all.end(),
                       [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
      const std::vector<Hypothesis> found = search({1024, penalty, ends}, longest, model);
      REQUIRE(found.size() == all.size());
      for (std::size_t i = 0; i < 10; ++i) {
        CAPTURE(i);
        CHECK(found[i].tokens == all[i].tokens);
        CHECK(found[i].finished == all[i].finished);
        CHECK(found[i].score == Approx(all[i].score).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("beam search: one beam is greedy") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const Model model = [&](const Tokens& text) { return table(text, seed); };
    Tokens greedy;
    bool ended = false;
    while (greedy.size() < 8 && !ended) {
      const std::vector<double> row = model(greedy);
      const auto best = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      ended = best == kEnd;
      if (!ended) greedy.push_back(best);
    }
    const std::vector<Hypothesis> found = search({1, 0, {kEnd}}, 8, model);
    REQUIRE(found.size() == 1);
    CHECK(found[0].tokens == greedy);
    CHECK(found[0].finished == ended);
  }
}

TEST_CASE("beam search: lengths, ranks and the end by hand") {
  // Two beams. After nothing: 0 (0.5), end (0.3), 1 (0.2). After 0: 0 (0.6), end (0.4); after 1: end (0.9), 0 (0.1).
  const auto logs = [](std::vector<double> row) {
    for (double& value : row) value = std::log(std::max(value, 1e-12));
    return row;
  };
  const Model model = [&](const Tokens& text) {
    if (text.empty()) return logs({0.5, 0.2, 0, 0.3});
    if (text.size() > 1) return logs({0.5, 0.5, 0, 0});
    return text[0] == 0 ? logs({0.6, 0, 0, 0.4}) : logs({0.1, 0, 0, 0.9});
  };
  SECTION("a score is the log-probability over the length with the end token") {
    // Step 1: the end is second: "" scores ln 0.3. Step 2: 00 (0.3) leads, 0 + end (0.2) is second and scores
    // ln 0.2 / 2; 1 + end (0.18) is third and dropped. Two texts, but 00 scores ln 0.3 / 2 already and stays open.
    const std::vector<Hypothesis> found = search({2, 1, {kEnd}}, 2, model);
    REQUIRE(found.size() == 2);
    CHECK(found[0].tokens == Tokens{0, 0});
    CHECK_FALSE(found[0].finished);
    CHECK(found[0].score == Approx(std::log(0.3) / 2));
    CHECK(found[1].tokens == Tokens{0});
    CHECK(found[1].finished);
    CHECK(found[1].score == Approx(std::log(0.2) / 2));
  }
  SECTION("the search is done when nothing open can be better") {
    BeamSearch search({2, 0, {kEnd}});
    const auto first = search.advance(rows_of({{}}, model), kVocab);
    REQUIRE(first.size() == 2);
    CHECK((first[0].beam == 0 && first[0].token == 0));
    CHECK((first[1].beam == 0 && first[1].token == 1));
    CHECK_FALSE(search.done());
    search.advance(rows_of({{0}, {1}}, model), kVocab);
    CHECK_FALSE(search.done());  // texts of 0.3 and 0.2, and 00 with 0.3 is open
    search.advance(rows_of({{0, 0}, {1, 0}}, model), kVocab);
    CHECK(search.done());  // the best continuation has 0.15
    const std::vector<Hypothesis> found = search.finish();
    REQUIRE(found.size() == 2);
    CHECK(found[0].tokens.empty());
    CHECK(std::exp(found[0].score) == Approx(0.3));
    CHECK(found[1].tokens == Tokens{0});
  }
}
