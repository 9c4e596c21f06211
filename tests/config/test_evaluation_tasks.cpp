#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string problem_of_tasks(const std::string& tasks) {
  return error_of([&] { parse_small({"evaluation.tasks=" + tasks}); });
}

}  // namespace

TEST_CASE("evaluation.tasks: both notations are read and the print reads back", "[config]") {
  const Config config =
      parse_small({R"(evaluation.tasks=[{name = "wiki", task = "wikitext", data = "a b.txt", every = 7, stride = 16},)"
                   R"({task = "lambada", data = "l", strict = true}, {task = "choices", data = "c"}])"});
  const std::vector<EvaluationTaskConfig> expected = {
      {.name = "wiki", .task = "wikitext", .data = "a b.txt", .every = 7, .stride = 16},
      {.name = "lambada", .task = "lambada", .data = "l", .strict = true},
      {.name = "choices", .task = "choices", .data = "c"}};
  CHECK((config.evaluation.tasks == expected));
  CHECK((parse_config_text(print_config(config), "printed.toml").evaluation == config.evaluation));
  const std::string tables = small_file() + "[[evaluation.tasks]]\ntask = \"choices\"\ndata = \"c\"\n";
  CHECK((parse_config_text(tables, "f.toml").evaluation.tasks == std::vector<EvaluationTaskConfig>{expected[2]}));
  CHECK(parse_small({"evaluation.tasks=[]"}).evaluation.tasks.empty());
  CHECK(print_config(parse_small({})).find("tasks") == std::string::npos);
}

TEST_CASE("evaluation.tasks: what is wrong is said with its place", "[config]") {
  struct Case {
    const char *tasks, *message;
  };
  for (const auto& [tasks, message] :
       {Case{"3", "evaluation.tasks: expected array of tables {name, task, data, every, ...}, got"},
        Case{R"(["x"])", "evaluation.tasks[0]: expected table"},
        Case{R"([{data = "x"}])", "evaluation.tasks[0]: needs a task: wikitext, text, lambada, choices"},
        Case{R"([{task = "choices"}])", "evaluation.tasks[0]: needs data"},
        Case{R"([{task = "choices", data = 3}])", "evaluation.tasks[0].data: expected string, got integer"},
        Case{R"([{task = "choices", data = ""}])", "evaluation.tasks[0].data: is empty"},
        Case{R"([{task = "lambda", data = "x"}])", "did you mean \"lambada\"?"},
        Case{R"([{task = "choices", data = "x", evry = 3}])", "unknown key 'evry'"},
        Case{R"([{task = "choices", data = "x", every = -1}])", "every: -1 is out of range"},
        Case{R"([{task = "choices", data = "x", every = 2.5}])", "every: expected integer, got number"},
        Case{R"([{task = "choices", data = "x", strict = true}])", "strict: belongs to task \"lambada\""},
        Case{R"([{task = "lambada", data = "x", strict = 1}])", "strict: expected true or false"},
        Case{R"([{task = "lambada", data = "x", stride = 8}])", "stride: belongs to tasks \"wikitext\" and \"text\""},
        Case{R"([{task = "wikitext", data = "x", stride = 0}])", "stride: 0 is out of range"},
        Case{R"([{task = "wikitext", data = "x", stride = 17}])", "stride = 17 is above model.sequence_length = 16"},
        Case{R"([{task = "choices", data = "${NO_SUCH_VARIABLE}"}])", "'NO_SUCH_VARIABLE' is not set"},
        Case{R"([{task = "choices", data = "x"}, {task = "choices", data = "y"}])", "both called \"choices\""},
        Case{R"([{name = "test", task = "choices", data = "x"}])", "is what the test data is called"},
        Case{R"([{name = "validation/a", task = "choices", data = "x"}])", "is what the validation data is called"}}) {
    CAPTURE(tasks);
    CHECK_THAT(problem_of_tasks(tasks), Contains(message));
  }
}
