#include "support/require_error.h"
#include "task_support.h"

namespace megatron::test {
namespace {

std::unique_ptr<EvaluationTask> choices(std::string_view text, std::int64_t context = 100) {
  return task_kind("choices").make(byte_input(text, context));
}

TEST_CASE("choices: a space stands between a context and a choice without one") {
  CHECK(shown(*choices(R"({"context":"It is","choices":["on","offset"],"answer":1})")) ==
        std::vector<std::string>{"It is| on", "It is| offset"});
  CHECK(shown(*choices(R"({"answer":0,"choices":["x"," y"],"context":"A:\n ","more":null})")) ==
        std::vector<std::string>{"A:|\n x", "A:|\n  y"});
  CHECK(shown(*choices(R"({"context":"A","choices":["\tx"],"answer":0})")) == std::vector<std::string>{"A|\tx"});
  CHECK(shown(*choices(R"({"context":"","choices":["x"],"answer":0})")) == std::vector<std::string>{"#|x"});
}

TEST_CASE("choices: accuracy by sum and per byte, by hand") {
  // "b" is a byte, " b" two targets; "cdef" four bytes and five targets.
  const auto task = choices(
      "{\"context\":\"a\",\"choices\":[\"b\",\"cdef\"],\"answer\":1}\n"
      "{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"answer\":0}\n");
  std::vector<TargetScore> scores(2 + 5 + 2 + 2);
  scores[0].log_probability = -1;  // "b": -1 in all, -1 per byte
  scores[4].log_probability = -2;  // "cdef": -2 in all, -0.5 per byte
  scores[7].log_probability = -3;  // both -3: the first is taken
  scores[10].log_probability = -3;
  const EvaluationResult result = task->result(scores);
  CHECK(result.examples == 2);
  CHECK(result.tokens == 5 + 2);  // only the right answers count
  CHECK(result.loss == Approx(5.0 / 7));
  CHECK(result.accuracy.value() == 0.5);
  CHECK(result.accuracy_normalized.value() == 1);
}

TEST_CASE("choices: a question counts as shortened once") {
  const auto task = choices(R"({"context":"abcdef","choices":["xy","x"],"answer":0})", 5);
  CHECK(shown(*task) == std::vector<std::string>{"def| xy", "cdef| x"});
  CHECK(task->result(std::vector<TargetScore>(5)).shortened == 1);
  require_error(ErrorKind::data, {"data.jsonl:1:", "6 tokens"},
                [] { choices(R"({"context":"a","choices":["vwxyz"],"answer":0})", 5); });
}

TEST_CASE("choices: hostile files are one error with the line") {
  const std::string good = "{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0}\n";
  const auto refuse = [&](const std::string& line, const std::vector<std::string>& parts) {
    require_error(ErrorKind::data, parts, [&] { choices(good + line); });
  };
  refuse(R"({"choices":["b"],"answer":0})", {"data.jsonl:2:", "\"context\""});
  refuse(R"({"context":"a","answer":0})", {"data.jsonl:2:", "\"choices\""});
  refuse(R"({"context":"a","choices":["b"]})", {"data.jsonl:2:", "\"answer\""});
  refuse(R"({"context":"a","choices":[],"answer":0})", {"data.jsonl:2:", "empty"});
  refuse(R"({"context":"a","choices":["b",""],"answer":0})", {"data.jsonl:2:", "a choice is empty"});
  refuse(R"({"context":"a","choices":["b","c"],"answer":2})", {"data.jsonl:2:", "is 2", "2 choices"});
  refuse(R"({"context":"a","choices":["b","c"],"answer":-1})", {"data.jsonl:2:", "byte 45"});
  refuse(R"({"context":"a","choices":["b","c"],"answer":"b"})", {"data.jsonl:2:"});
  refuse(R"({"context":"a","choices":"b","answer":0})", {"data.jsonl:2:", "list of strings"});
  refuse(R"({"context":"a","choices":["b",7],"answer":0})", {"data.jsonl:2:"});
  require_error(ErrorKind::data, {"no examples"}, [] { choices("\n"); });
}

}  // namespace
}  // namespace megatron::test
