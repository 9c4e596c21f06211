// Which token follows a row of logits.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "inference/generate.h"
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

}  // namespace

TEST_CASE("a token is one of the likeliest, or of those that together are likely enough", "[generate]") {
  const auto logit = [](double probability) { return static_cast<float>(std::log(probability)); };
  const std::vector<float> logits = {logit(0.1), logit(0.4), logit(0.2), logit(0.2), logit(0.1)};
  using Tokens = std::set<std::int32_t>;
  CHECK(drawn(logits, {}) == Tokens{0, 1, 2, 3, 4});
  CHECK(drawn(logits, {.top_k = 1}) == Tokens{1});
  CHECK(drawn(logits, {.top_k = 2}) == Tokens{1, 2, 3});  // a tie is kept
  CHECK(drawn(logits, {.top_p = 0.3}) == Tokens{1});
  CHECK(drawn(logits, {.top_p = 0.5}) == Tokens{1, 2});
  CHECK(drawn(logits, {.top_k = 2, .top_p = 0.45}) == Tokens{1});  // 0.4 of the 0.8 that top_k leaves
  CHECK(drawn(logits, {.top_k = 2, .top_p = 0.7}) == Tokens{1, 2});
  CHECK(drawn(logits, {.temperature = 0.01}) == Tokens{1});
  int likeliest = 0;
  for (int i = 0; i < 1000; ++i) likeliest += sample_token(logits, {}, i / 1000.0) == 1 ? 1 : 0;
  CHECK(std::abs(likeliest - 400) <= 1);
}

TEST_CASE("a model whose logits are no numbers gives no text", "[generate]") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const std::vector<float> logits = {1, bad, 2};
  for (const std::int64_t top_k : {0, 1, 2}) {
    require_error(ErrorKind::numerics, {"not all of the model's logits", "older checkpoint"},
                  [&] { sample_token(logits, {.top_k = top_k}, 0.5); });
  }
}
