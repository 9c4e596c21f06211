// Tests of the token that follows a row of logits, and of where a text stops.
#include <cmath>
#include <limits>
#include <set>

#include "base/core/philox.h"
#include "inference/decoding/sampling.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// All that can be drawn.
std::set<std::int32_t> drawn(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<std::int32_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(sample_token(logits, options, i / 1000.0));
  return tokens;
}

float logit(double probability) {
  return static_cast<float>(std::log(probability));
}

/// Pearson's statistic of `draws` draws, each with uniform(i), against `probabilities`.
template <class Uniform>
double chi_square(const std::vector<float>& logits, const SamplingOptions& options,
                  const std::vector<double>& probabilities, int draws, const Uniform& uniform) {
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(sample_token(logits, options, uniform(i)))];
  double sum = 0;
  for (std::size_t token = 0; token < counts.size(); ++token) {
    const double expected = probabilities[token] * draws;
    if (expected == 0) {
      CHECK(counts[token] == 0);
    } else {
      sum += (counts[token] - expected) * (counts[token] - expected) / expected;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("sampling: only the likeliest tokens, or those likely enough together") {
  const std::vector<float> logits = {logit(0.1), logit(0.4), logit(0.2), logit(0.2), logit(0.1)};
  using TokenSet = std::set<std::int32_t>;
  CHECK(drawn(logits, {}) == TokenSet{0, 1, 2, 3, 4});
  CHECK(drawn(logits, {.top_k = 1}) == TokenSet{1});
  CHECK(drawn(logits, {.top_k = 2}) == TokenSet{1, 2, 3});  // a tie is kept
  CHECK(drawn(logits, {.top_p = 0.3}) == TokenSet{1});
  CHECK(drawn(logits, {.top_p = 0.5}) == TokenSet{1, 2});
  CHECK(drawn(logits, {.top_k = 2, .top_p = 0.45}) == TokenSet{1});  // 0.4 of the 0.8 that top_k leaves
  CHECK(drawn(logits, {.top_k = 2, .top_p = 0.7}) == TokenSet{1, 2});
  CHECK(drawn(logits, {.temperature = 0.01}) == TokenSet{1});
  int likeliest = 0;
  for (int i = 0; i < 1000; ++i) likeliest += sample_token(logits, {}, i / 1000.0) == 1 ? 1 : 0;
  CHECK(std::abs(likeliest - 400) <= 1);
}

TEST_CASE("sampling: logits that are not finite are an error") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const std::vector<float> logits = {1, bad, 2};
  for (const std::int64_t top_k : {0, 1, 2}) {
    require_error(ErrorKind::numerics, {"not all of the model's logits", "older checkpoint"},
                  [&] { sample_token(logits, {.top_k = top_k}, 0.5); });
  }
}

TEST_CASE("sampling: a large vocabulary is drawn from in order of probability") {
  // Later tokens of 1,000 are likelier: the quantiles of the sorted distribution are known.
  std::vector<float> logits;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    logits.push_back(logit(i + 1));
    sum += i + 1;
  }
  double before = 0;
  for (int i = 999; i > 0; --i) {
    const double probability = (i + 1) / sum, middle = before + probability / 2;
    CHECK(sample_token(logits, {}, middle) == i);
    CHECK(sample_token(logits, {.top_k = 999}, middle / (1 - 1 / sum)) == i);
    before += probability;
  }
}

TEST_CASE("sampling: frequencies are the probabilities over each counter") {
  const std::vector<float> logits = {logit(0.05), logit(0.35), logit(0.25), logit(0.2), logit(0.15)};
  const int draws = 20000;
  // 0.1 % of fair samplers exceed 18.47 with 4 degrees of freedom, 13.82 with 2.
  const std::vector<double> all = {0.05, 0.35, 0.25, 0.2, 0.15};
  const std::vector<double> likeliest = {0, 0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0};
  std::vector<double> sharp = {0.05 * 0.05, 0.35 * 0.35, 0.25 * 0.25, 0.2 * 0.2, 0.15 * 0.15};
  for (double& p : sharp) p /= 0.0025 + 0.1225 + 0.0625 + 0.04 + 0.0225;
  const auto by_position = [](int i) { return sampling_uniform(7, 0, 0, i); };
  const auto by_prompt = [](int i) { return sampling_uniform(7, i, 0, 3); };
  const auto by_sample = [](int i) { return sampling_uniform(7, 2, i, 3); };
  const auto by_seed = [](int i) { return sampling_uniform(static_cast<std::uint64_t>(i), 0, 0, 0); };
  CHECK(chi_square(logits, {}, all, draws, by_position) < 18.47);
  CHECK(chi_square(logits, {}, all, draws, by_prompt) < 18.47);
  CHECK(chi_square(logits, {}, all, draws, by_sample) < 18.47);
  CHECK(chi_square(logits, {}, all, draws, by_seed) < 18.47);
  CHECK(chi_square(logits, {.temperature = 0.5}, sharp, draws, by_position) < 18.47);
  CHECK(chi_square(logits, {.top_k = 3}, likeliest, draws, by_prompt) < 13.82);
  CHECK(chi_square(logits, {.top_p = 0.7}, likeliest, draws, by_sample) < 13.82);
  // The statistic can tell: it rejects a temperature of 0.9.
  CHECK(chi_square(logits, {.temperature = 0.9}, all, draws, by_position) > 18.47);
}

TEST_CASE("sampling: the first sample of prompt 0 draws as earlier versions did") {
  for (const std::uint32_t position : {0u, 1u, 77u}) {
    const std::uint32_t word = philox4x32<7>({position, 0, 0, 0}, random_key(1234, 0, hash_name("sampling")))[0];
    CHECK(sampling_uniform(1234, 0, 0, position) == word / 4294967296.0);
  }
  std::set<double> different;
  for (const std::int64_t prompt : {0, 1, 2}) {
    for (const std::int64_t sample : {0, 1, 2}) {
      for (const std::int64_t position : {0, 1, 2}) different.insert(sampling_uniform(1, prompt, sample, position));
    }
  }
  CHECK(different.size() == 27);
}

TEST_CASE("sampling: the nucleus shrinks by its decay down to its bound") {
  const SamplingOptions options{.top_p = 0.8, .top_p_decay = 0.5, .top_p_bound = 0.3};
  CHECK(options_at(options, 0).top_p == 0.8);
  CHECK(options_at(options, 1).top_p == Approx(0.4));
  CHECK(options_at(options, 2).top_p == 0.3);
  CHECK(options_at(options, 100).top_p == 0.3);
  CHECK(options_at({.top_p = 0.8}, 5).top_p == 0.8);
  CHECK(options_at({.top_p_decay = 0.5}, 5).top_p == 0);  // no nucleus at all
  // Decayed to nothing, the likeliest token is left; 0 would allow all of them.
  const std::vector<float> logits = {0, 1, 0.5};
  CHECK(drawn(logits, options_at({.top_p = 0.5, .top_p_decay = 0.1}, 5000)) == std::set<std::int32_t>{1});
}

TEST_CASE("sampling: repeated tokens become less likely for either sign") {
  std::vector<float> logits = {2, -2, 2, -2, 0};
  const std::vector<std::int32_t> context = {0, 1, 0, 4};  // the second 0 changes nothing more
  penalize_repetition(logits, context, 2);
  CHECK(logits == std::vector<float>{1, -4, 2, -2, 0});
  penalize_repetition(logits, context, 1);
  CHECK(logits == std::vector<float>{1, -4, 2, -2, 0});
  for (const double penalty : {1e-300, 1e300}) penalize_repetition(logits, context, penalty);
  for (const float logit : logits) CHECK(std::isfinite(logit));
}

TEST_CASE("sampling: log-probabilities are the softmax's, likeliest first") {
  const std::vector<float> logits = {logit(0.1) + 3, logit(0.4) + 3, logit(0.25) + 3, logit(0.25) + 3};
  CHECK(log_sum_exp(logits) == Approx(3));
  const std::vector<TokenLogProbability> best = likeliest_tokens(logits, 3);
  REQUIRE(best.size() == 3);
  CHECK(best[0].token == 1);
  CHECK(best[0].value == Approx(std::log(0.4)));
  CHECK(best[1].token == 2);  // ties in the order of the vocabulary
  CHECK(best[2].token == 3);
  CHECK(best[2].value == Approx(std::log(0.25)));
  CHECK(likeliest_tokens(logits, 10).size() == 4);
  const std::vector<float> large(3, 1000.0f);  // its exponential overflows
  CHECK(log_sum_exp(large) == Approx(1000 + std::log(3)));
}

TEST_CASE("stop texts: found across pieces, and no part of them is shown") {
  const std::string text = "one two, thr three\nfour";
  for (const std::size_t size : {1, 2, 3, 50}) {
    CAPTURE(size);
    const auto shown = [&](const std::vector<std::string>& texts) {
      StopTexts stop(texts);
      std::string result;
      for (std::size_t i = 0; i < text.size() && !stop.stopped(); i += size) result += stop.add(text.substr(i, size));
      const bool stopped = stop.stopped();
      result += stop.rest();
      return result + (stopped ? "|" : "");
    };
    CHECK(shown({"three"}) == "one two, thr |");
    CHECK(shown({"\n"}) == "one two, thr three|");
    CHECK(shown({"thrice"}) == text);
    CHECK(shown({"four", " three"}) == "one two, thr|");
    CHECK(shown({"three\nfive", ", thr"}) == "one two|");
    CHECK(shown({"r threx", "r three"}) == "one two, th|");
    CHECK(shown({"fourteen"}) == text);  // a beginning that is held back is given at the end
    CHECK(shown({}) == text);
  }
}
