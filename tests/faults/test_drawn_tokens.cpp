// megatron_generate: which tokens it draws, and what becomes of those that have no text.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "faults/checks.h"
#include "support/catch.h"

using nlohmann::json;

namespace {

/// Probabilities that tokens are drawn with, from the model's own log-probabilities, in order.
std::vector<double> probabilities(const std::vector<double>& own, double temperature, std::size_t top_k, double top_p) {
  std::vector<std::size_t> order(own.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return own[a] > own[b]; });
  order.resize(std::min(top_k, order.size()));
  std::vector<double> all(own.size());
  double sum = 0, nucleus = 0;
  for (const std::size_t token : order) sum += std::exp(own[token] / temperature);
  for (const std::size_t token : order) {
    if (nucleus >= top_p * sum) break;
    nucleus += all[token] = std::exp(own[token] / temperature);
  }
  for (double& one : all) one /= nucleus;
  return all;
}

struct ChiSquared {
  double statistic = 0, limit = 0;
};

/// Pearson's statistic, with all tokens expected less than five times as one, and the value that it exceeds once in
/// 10,000 draws where the probabilities are right (Wilson and Hilferty's approximation).
ChiSquared chi_squared(const std::vector<double>& wanted, const std::vector<int>& drawn) {
  const double draws = std::accumulate(drawn.begin(), drawn.end(), 0.0);
  double statistic = 0, rare_wanted = 0, rare_drawn = 0;
  int cells = 0;
  const auto add = [&](double expected, double seen) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (std::size_t token = 0; token < wanted.size(); ++token) {
    const double expected = wanted[token] * draws;
    if (expected >= 5) {
      add(expected, drawn[token]);
    } else {
      rare_wanted += expected;
      rare_drawn += drawn[token];
    }
  }
  if (rare_wanted > 0) add(rare_wanted, rare_drawn);
  const double free = cells - 1, part = 2 / (9 * free), cube_root = 1 - part + 3.719 * std::sqrt(part);
  return {rare_wanted == 0 && rare_drawn > 0 ? INFINITY : statistic, free * cube_root * cube_root * cube_root};
}

}  // namespace

TEST_CASE("generation: tokens without text are tokens all the same") {
  // The tokenizer knows 257 of the 600 rows of the model's table.
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), output = folder.file("texts.jsonl");
  train(kOneRank, run, {"model.vocab_size=600", "train.steps=2", "train.evaluate_every=0", "checkpoint.every_steps=2"});
  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {generate_program(), run});
    return done(options).out;
  };
  const auto ascii = [](const std::string& text) {
    std::string kept;
    for (const char c : text) kept += static_cast<signed char>(c) > 0 ? std::string(1, c) : "";
    return kept;
  };
  with({"--unconditional", "10", "--max-new-tokens", "20", "--output", output, "--logprobs", "1"});
  int without_text = 0;
  for (const json& line : lines_of(contents_of(output))) {
    std::string text;
    for (const json& token : line.at("tokens")) {
      without_text += token >= 257 ? 1 : 0;
      if (token < 128) text += static_cast<char>(token.get<int>());
    }
    CHECK(ascii(line.at("text").get<std::string>()) == ascii(text));
    CHECK(line.at("logprobs").size() == line.at("tokens").size());
  }
  CHECK(without_text > 60);  // more than half of 200 are expected
  // A single text comes piece by piece.
  with({"--prompt", "Once", "--output", output, "--force"});
  CHECK(ascii(with({"--prompt", "Once"})) ==
        ascii("Once" + lines_of(contents_of(output)).at(0).at("text").get<std::string>() + "\n"));
  CHECK(with({"--prompt", "Once", "--beams", "2", "--max-new-tokens", "4"}).starts_with("Once"));
}

TEST_CASE("generation: tokens are drawn as often as the model finds them likely") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), output = folder.file("texts.jsonl");
  train(kOneRank, run,
        {"train.steps=60", "train.evaluate_every=0", "checkpoint.every_steps=60", "learning_rate.peak=0.01",
         "learning_rate.minimum=0.01"});
  struct Case {
    double temperature;
    std::size_t top_k;
    double top_p;
  };
  const std::string draws = "6000";
  for (const Case& one : {Case{1, 257, 1}, Case{1.5, 20, 1}, Case{0.8, 12, 0.9}}) {
    CAPTURE(one.temperature, one.top_k, one.top_p);
    done({generate_program(), run,
          "--prompt",         "The",
          "--max-new-tokens", "1",
          "--samples",        draws,
          "--batch",          "250",
          "--temperature",    std::to_string(one.temperature),
          "--top-k",          std::to_string(one.top_k),
          "--top-p",          std::to_string(one.top_p),
          "--seed",           "5",
          "--output",         output,
          "--logprobs",       "257",
          "--force"});
    std::vector<double> own(257);
    std::vector<int> drawn(257);
    for (const json& line : lines_of(contents_of(output))) {
      if (line.at("tokens").empty()) {
        ++drawn.at(256);  // the end of the document
        continue;
      }
      ++drawn.at(line.at("tokens")[0].get<std::size_t>());
      for (const json& pair : line.at("top_logprobs").at(0)) own.at(pair[0].get<std::size_t>()) = pair[1];
    }
    const auto against = [&](double temperature, std::size_t top_k, double top_p) {
      return chi_squared(probabilities(own, temperature, top_k, top_p), drawn);
    };
    const ChiSquared right = against(one.temperature, one.top_k, one.top_p);
    CHECK(right.statistic < right.limit);
    // Neighbouring settings are told apart.
    const ChiSquared warmer = against(one.temperature * 1.3, one.top_k, one.top_p);
    CHECK(warmer.statistic > warmer.limit);
    const ChiSquared fewer = against(one.temperature, one.top_k == 257 ? 256 : one.top_k - 2, one.top_p * 0.95);
    CHECK(fewer.statistic > fewer.limit);
  }
}
