#include <cmath>

#include "support/require_error.h"
#include "task_support.h"

namespace megatron::test {
namespace {

std::unique_ptr<EvaluationTask> plain_text(std::string_view text, std::int64_t context) {
  return task_kind("text").make(byte_input(text, context));
}

TEST_CASE("text: windows half a context apart; the first token is a target") {
  CHECK(shown(*plain_text("abcdefghi", 4)) == std::vector<std::string>{"#|abcd", "bcd|ef", "def|gh", "fgh|i"});
  CHECK(shown(*plain_text("a", 1)) == std::vector<std::string>{"#|a"});
  TaskInput input = byte_input("abcdefghi", 4);
  input.stride = 4;
  input.begin = '^';
  CHECK(shown(*task_kind("text").make(input)) == std::vector<std::string>{"^|abcd", "d|efgh", "h|i"});
}

TEST_CASE("text: bits are of all bytes and words of the file, by hand") {
  const auto task = plain_text("the \xC3\xA9t\xC3\xA9\n\tran ", 100);  // 15 bytes, 3 words
  CHECK(shown(*task) == std::vector<std::string>{"#|the \xC3\xA9t\xC3\xA9\n\tran "});
  const EvaluationResult result = task->result(std::vector<TargetScore>(15, {-2 * std::log(2.0), false}));
  CHECK(result.tokens == 15);
  CHECK(result.loss == Approx(2 * std::log(2.0)));
  CHECK(result.perplexity() == Approx(4));
  CHECK(result.bits_per_byte.value() == Approx(2));
  CHECK(result.bits_per_word.value() == Approx(10));
  CHECK_FALSE(plain_text(" \n", 9)->result(std::vector<TargetScore>(2)).bits_per_word.has_value());
}

TEST_CASE("text: a token has more than one byte, and a byte order mark none") {
  TaskInput input = byte_input(
      "\xEF\xBB\xBF"
      "abcdef",
      9);
  input.encode = [](std::string_view, std::string_view) { return TaskInput::Pair{{'A', 'B', 'C'}, 0}; };
  const auto task = task_kind("text").make(input);
  const EvaluationResult result = task->result(std::vector<TargetScore>(3, {-std::log(2.0), false}));
  CHECK(result.bits_per_byte.value() == Approx(0.5));
}

TEST_CASE("text: what is no text is refused") {
  require_error(ErrorKind::data, {"data.jsonl", "1 tokens"}, [] { plain_text("", 4); });
  require_error(ErrorKind::data, {"data.jsonl:1:", "UTF-8"}, [] { plain_text("a\xC3(", 4); });
}

TEST_CASE("a begin token precedes every text, also one whose context is cut") {
  const auto made = [](const char* task, std::string_view text, std::int64_t context) {
    TaskInput input = byte_input(text, context);
    input.begin = '^';
    return shown(*task_kind(task).make(input));
  };
  using Shown = std::vector<std::string>;
  CHECK(made("wikitext", "abcdef", 4) == Shown{"^|abcd", "d|ef"});
  CHECK(made("lambada", R"({"text":"abc"})", 9) == Shown{"^ab|c"});
  CHECK(made("lambada", R"({"text":"c"})", 9) == Shown{"^|c"});
  CHECK(made("lambada", R"({"text":"abcdef"})", 3) == Shown{"^de|f"});
  CHECK(made("lambada", R"({"text":"abcdef"})", 1) == Shown{"^|f"});
  CHECK(made("choices", R"({"context":"abcdef","choices":["xy","x"],"answer":0})", 5) == Shown{"^ef| xy", "^def| x"});
  CHECK(made("choices", R"({"context":"","choices":["x"],"answer":0})", 5) == Shown{"^|x"});
}

}  // namespace
}  // namespace megatron::test
