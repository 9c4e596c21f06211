// Guesses of the next tokens: what followed the latest earlier place that reads as the end does.
#include "inference/decoding/look_up.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("look-up: tokens after the latest earlier match of the last 3 or 2 or 1") {
  using TokenIds = std::vector<std::int32_t>;
  const auto guess = [](const TokenIds& text, std::int64_t count) { return look_up(text, count); };
  CHECK(guess({1, 2, 3, 7, 8, 9, 1, 2, 3}, 2) == TokenIds{7, 8});
  CHECK(guess({1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3}, 6) == TokenIds{8, 1, 2, 3, 8, 1});
  CHECK(guess({5, 2, 3, 7, 3, 4, 9, 2, 3}, 2) == TokenIds{7, 3});  // two are worth more than one
  CHECK(guess({5, 3, 6, 9, 3}, 1) == TokenIds{6});
  CHECK(guess({4, 4, 4, 4}, 3) == TokenIds{4, 4, 4});  // from a place that overlaps the end
  CHECK(guess({1, 2, 3}, 4).empty());
  CHECK(guess({1}, 4).empty());
  CHECK(guess({}, 4).empty());
  CHECK(guess({1, 1, 1}, 0).empty());
}
