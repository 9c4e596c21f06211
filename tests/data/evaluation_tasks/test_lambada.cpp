#include "support/require_error.h"
#include "task_support.h"

namespace megatron::test {
namespace {

std::unique_ptr<EvaluationTask> lambada(std::string_view text, std::int64_t context, bool whole_word) {
  TaskInput input = byte_input(text, context);
  input.whole_word = whole_word;
  return task_kind("lambada").make(input);
}

constexpr const char* kTwo = "{\"text\": \"he ran home\"}\r\n\n{\"id\": [1, {}], \"text\": \"a\\u00e9 b\"}";

TEST_CASE("lambada: the last token, or the last word with its space") {
  CHECK(shown(*lambada(kTwo, 100, false)) == std::vector<std::string>{"he ran hom|e", "a\xC3\xA9 |b"});
  CHECK(shown(*lambada(kTwo, 100, true)) == std::vector<std::string>{"he ran| home", "a\xC3\xA9| b"});
  CHECK(shown(*lambada("{\"text\":\" a  b \\n\"}", 100, true)) == std::vector<std::string>{"a| b"});
}

TEST_CASE("lambada: nothing in front of the target is the end of a document") {
  CHECK(shown(*lambada("{\"text\":\"a\"}", 100, false)) == std::vector<std::string>{"#|a"});
  CHECK(shown(*lambada("{\"text\":\"word\"}", 100, true)) == std::vector<std::string>{"#| word"});
}

TEST_CASE("lambada: a context that is too long loses its beginning") {
  const auto task = lambada(kTwo, 6, true);
  CHECK(shown(*task) == std::vector<std::string>{"an| home", "a\xC3\xA9| b"});
  CHECK(task->result(std::vector<TargetScore>(7)).shortened == 1);
  require_error(ErrorKind::data, {"data.jsonl:1:", "5 tokens", "4"}, [] { lambada(kTwo, 4, true); });
}

TEST_CASE("lambada: a text is right if all of its targets are") {
  const auto task = lambada(kTwo, 100, true);  // 5 and 2 targets
  std::vector<TargetScore> scores(7, {-1.0, true});
  scores[5].log_probability = -3;
  CHECK(task->result(scores).accuracy.value() == 1);
  scores[2].right = false;
  const EvaluationResult result = task->result(scores);
  CHECK(result.accuracy.value() == 0.5);
  CHECK(result.examples == 2);
  CHECK(result.tokens == 7);
  CHECK(result.loss == Approx(9.0 / 7));
  scores[6].right = false;
  CHECK(task->result(scores).accuracy.value() == 0);
}

TEST_CASE("lambada: hostile files are one error with the line") {
  const auto refuse = [](std::string_view text, const std::vector<std::string>& parts) {
    require_error(ErrorKind::data, parts, [&] { lambada(text, 100, false); });
  };
  refuse("", {"data.jsonl", "no examples"});
  refuse("\n \r\n", {"no examples"});
  refuse("{\"text\":\"a\"}\n{\"words\":\"a\"}\n", {"data.jsonl:2:", "\"text\""});
  refuse("{\"text\":\"a\"}\n\n{\"text\":7}\n", {"data.jsonl:3:", "byte 9"});
  refuse("{\"text\":\"a\"", {"data.jsonl:1:"});
  refuse("{\"text\":\"a\"} x", {"data.jsonl:1:"});
  refuse("[1]", {"data.jsonl:1:", "JSON object"});
  refuse("{\"text\":\" \"}", {"data.jsonl:1:", "empty"});
  refuse("{\"text\":\"a\"}\n{\"text\":\"\xFF\"}", {"data.jsonl:2:", "UTF-8"});
}

TEST_CASE("lambada: a byte order mark and a line of 10 MB") {
  std::string text = "\xEF\xBB\xBF{\"text\":\"" + std::string(10 << 20, 'a') + " end\"}";
  const auto task = lambada(text, 6, true);
  CHECK(shown(*task) == std::vector<std::string>{"aaa| end"});
}

}  // namespace
}  // namespace megatron::test
