// Published files of questions as the choices task reads them: lines in the form of HellaSwag, PIQA, ARC and MMLU, and
// the prompts of EleutherAI's evaluation harness (hellaswag, piqa, arc_easy, mmlu) for them.
#include "data/evaluation_tasks/question_files.h"

#include "support/catch.h"
#include "support/require_error.h"
#include "task_support.h"

namespace megatron::test {
namespace {

/// "context|choice|choice|...=answer" of each question.
std::vector<std::string> questions(std::string_view text, const std::string& path = "data.jsonl",
                                   std::string_view labels = "") {
  std::vector<std::string> shown;
  TaskInput input = byte_input(text, 1000);
  input.path = path;
  input.labels = labels;
  visit_questions(input, [&](const ExampleLine&, const Question& question) {
    std::string line = question.context;
    for (const std::string& choice : question.choices) line += "|" + choice;
    shown.push_back(line + "=" + std::to_string(question.answer));
  });
  return shown;
}

using Shown = std::vector<std::string>;

TEST_CASE("question files: HellaSwag, the activity in front and without marks") {
  CHECK(
      questions(R"({"ind": 1, "activity_label": "Roof removal", "ctx_a": "A man sits on a roof.", "ctx_b": "he", )"
                R"("ctx": "A man sits on a roof. he", "endings": ["is  using wrap.", "starts [step] pulling."], )"
                R"("label": 1, "source_id": "x~y", "split_type": "indomain"})"
                "\n"
                R"({"activity_label": "Home", "ctx_a": "[header] How to paint [title] Wash it [b] now.", "ctx_b": "", )"
                R"("endings": ["a", "b"], "label": "0"})") ==
      Shown{"Roof removal: A man sits on a roof. He|is using wrap.|starts pulling.=1",
            "Home: How to paint. Wash it now.|a|b=0"});
}

TEST_CASE("question files: other members of a user's own form do not count") {
  CHECK(questions(R"({"context": "c", "choices": ["a", "b"], "answer": 1, "label": 0, "answerKey": "A"})") ==
        Shown{"c|a|b=1"});
  CHECK(
      questions(R"({"context": "c", "choices": ["a", "b"], "answer": 0, "label": null, "goal": 3, "question": [1]})") ==
      Shown{"c|a|b=0"});
}

TEST_CASE("question files: PIQA, whose labels may be a file by themselves") {
  const std::string line = R"({"goal": "open a jar", "sol1": "pull", "sol2": "twist"})";
  CHECK(questions(R"({"goal": "g", "sol1": "x", "sol2": "y", "label": 1})") == Shown{"Question: g\nAnswer:|x|y=1"});
  const Shown both = {"Question: open a jar\nAnswer:|pull|twist=1", "Question: open a jar\nAnswer:|pull|twist=0"};
  CHECK(questions(line + "\n" + line + "\n", "valid.jsonl", "1\n0\n") == both);
  const auto refused = [&](std::string_view labels, const std::string& part) {
    require_error(ErrorKind::data, {part}, [&] { questions(line + "\n" + line, "valid.jsonl", labels); });
  };
  refused("", "valid.jsonl:1: no key \"label\": PIQA's are a file by themselves, which --labels names");
  refused("1\n", "valid.jsonl:2: the file of labels has 1, fewer than questions");
  refused("1\n0\n1\n", "valid.jsonl has 2 questions, and the file of labels has more lines");
  refused("1\n2\n", "valid.jsonl:2: \"answer\" is 2, and there are 2 choices");
  refused("1\nx\n", "\"answer\" is x");
}

TEST_CASE("question files: ARC, as its own files and as hubs have it") {
  const Shown expected = {"Question: Why?\nAnswer:|one|two=1"};
  CHECK(questions(R"({"id": "M_1", "question": {"stem": "Why?", "choices": [{"text": "one", "label": "A"}, )"
                  R"({"text": "two", "label": "B"}]}, "answerKey": "B"})") == expected);
  CHECK(questions(R"({"id": "M_1", "question": "Why?", "choices": {"text": ["one", "two"], "label": ["1", "2"]}, )"
                  R"("answerKey": "2"})") == expected);
  require_error(ErrorKind::data, {"data.jsonl:1: the answer is \"C\", and no choice has this label"}, [] {
    questions(R"({"question": "Why?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "C"})");
  });
}

TEST_CASE("question files: MMLU, as CSV and as JSON lines, asks for a letter") {
  const std::string topic = "The following are multiple choice questions (with answers) about college biology.\n\n";
  const std::string asked = "Say \"x\",\nor y?\nA. 1\nB. 2, 3\nC. \nD. 4\nAnswer:|A|B|C|D=1";
  const std::string csv = "\"Say \"\"x\"\",\nor y? \",1,\"2, 3\",,4,B\r\n";
  CHECK(questions(csv + csv, "mmlu/test/college_biology_test.csv") == Shown{topic + asked, topic + asked});
  CHECK(questions(R"({"question": "Why?", "subject": "college_biology", "choices": ["a", "b"], "answer": 0})") ==
        Shown{topic + "Why?\nA. a\nB. b\nAnswer:|A|B=0"});
  const auto refused = [](const std::string& text, const std::string& part) {
    require_error(ErrorKind::data, {part}, [&] { questions(text, "a_test.csv"); });
  };
  refused(csv + "x,1,2,3,B\n", "a_test.csv:3: 5 comma-separated cells, and 6 are right");
  refused("x,1,2,3,4,E\n", "a_test.csv:1: the answer is \"E\"");
  refused("\"x,1,2,3,4,A\n", "a_test.csv:1: a cell whose quote is not closed");
  refused("\"x\"y,1,2,3,4,A\n", "a_test.csv:1: a cell whose quote");
  refused(" \n", "a_test.csv has no examples");
}

TEST_CASE("question files: our own form first; answers may be quoted numbers") {
  CHECK(questions(R"({"context": "c", "question": "q", "choices": ["x", "y"], "answer": "1"})") == Shown{"c|x|y=1"});
  require_error(ErrorKind::data, {"data.jsonl:1: no key \"context\", and not the keys of HellaSwag"},
                [] { questions(R"({"question": "q", "answer": 1})"); });
}

}  // namespace
}  // namespace megatron::test
