#include <cmath>

#include "support/require_error.h"
#include "task_support.h"

namespace megatron::test {
namespace {

std::unique_ptr<EvaluationTask> windows(std::string_view text, std::int64_t context, std::int64_t stride) {
  TaskInput input = byte_input(text, context);
  input.stride = stride;
  return task_kind("wikitext").make(input);
}

TEST_CASE("wikitext: windows overlap and count each target once") {
  CHECK(shown(*windows("abcdefghij", 4, 2)) == std::vector<std::string>{"a|bcde", "cde|fg", "efg|hi", "ghi|j"});
  CHECK(shown(*windows("abcdefghij", 4, 4)) == std::vector<std::string>{"a|bcde", "e|fghi", "i|j"});
  CHECK(shown(*windows("abcde", 4, 1)) == std::vector<std::string>{"a|bcde"});
  CHECK(shown(*windows("abcdef", 4, 1)) == std::vector<std::string>{"a|bcde", "bcde|f"});
  CHECK(shown(*windows("ab", 4, 3)) == std::vector<std::string>{"a|b"});
}

TEST_CASE("wikitext: every length and stride counts targets 1 to N-1 in order") {
  for (std::int64_t count = 2; count < 30; ++count) {
    for (std::int64_t stride = 1; stride <= 7; ++stride) {
      std::string text;
      for (std::int64_t i = 0; i < count; ++i) text.push_back(static_cast<char>('A' + i));
      std::string targets;
      const auto task = windows(text, 7, stride);
      for (const ScoredSequence& window : task->sequences()) {
        REQUIRE(window.tokens.size() <= 8);
        REQUIRE(window.first_scored >= 1);
        REQUIRE(window.targets() >= 1);
        targets += shown(window).substr(static_cast<std::size_t>(window.first_scored) + 1);
      }
      INFO(count << " tokens, stride " << stride);
      REQUIRE(targets == text.substr(1));
    }
  }
}

TEST_CASE("wikitext: loss, perplexity and words by hand") {
  // 5 words between single spaces, the empty one of two spaces in a row among them; 12 characters become 9.
  const auto task = windows(" ab , cd  e\n", 100, 32);
  CHECK(shown(*task) == std::vector<std::string>{" |ab, cd  e\n"});
  std::vector<TargetScore> scores(10, {-0.5, false});
  scores[0].log_probability = -2.5;
  const EvaluationResult result = task->result(scores);
  CHECK(result.examples == 1);
  CHECK(result.tokens == 10);
  CHECK(result.loss == Approx(0.7));
  CHECK(result.perplexity() == Approx(std::exp(0.7)));
  CHECK(result.token_ratio.value() == Approx(10.0 / 4));
  CHECK(result.adjusted_perplexity.value() == Approx(std::exp(0.7 * 2.5)));
  CHECK_FALSE(result.accuracy.has_value());
}

TEST_CASE("wikitext: perplexities end at e^20; one word has no loss per word") {
  const auto task = windows("a b", 8, 8);
  const EvaluationResult result = task->result(std::vector<TargetScore>(2, {-30.0, false}));
  CHECK(result.perplexity() == Approx(std::exp(20.0)));
  CHECK(result.adjusted_perplexity.value() == Approx(std::exp(20.0)));
  CHECK_FALSE(windows("ab", 8, 8)->result(std::vector<TargetScore>(1)).token_ratio.has_value());
}

TEST_CASE("wikitext: what is no text is refused") {
  require_error(ErrorKind::data, {"data.jsonl", "0 tokens"}, [] { windows("", 4, 2); });
  require_error(ErrorKind::data, {"data.jsonl", "1 tokens"}, [] { windows("a", 4, 2); });
  require_error(ErrorKind::data, {"data.jsonl:2:", "UTF-8", "byte 4"}, [] { windows("ab\n\xC3(", 4, 2); });
  require_error(ErrorKind::configuration, {"stride of 5", "4"}, [] { windows("abc", 4, 5); });
  require_error(ErrorKind::configuration, {"stride of 0"}, [] { windows("abc", 4, 0); });
}

TEST_CASE("tasks: an unknown one is refused with the names of all") {
  require_error(ErrorKind::configuration, {"\"glue\"", "wikitext, text, lambada, choices"}, [] { task_kind("glue"); });
}

}  // namespace
}  // namespace megatron::test
