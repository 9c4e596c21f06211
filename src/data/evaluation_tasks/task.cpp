#include "data/evaluation_tasks/task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/core/error.h"
#include "base/core/evaluation_tasks.h"
#include "base/core/named_rows.h"
#include "base/text/text.h"
#include "data/evaluation_tasks/tasks.h"

namespace megatron {

namespace {

constexpr std::array kTasks = {
    TaskKind{.name = "wikitext",
             .file = "the text of WikiText with its marks: perplexity of the text without them",
             .make = make_wikitext},
    TaskKind{.name = "text",
             .file = "any text file: perplexity of its tokens, and bits per byte and per word",
             .make = make_plain_text},
    TaskKind{
        .name = "lambada", .file = "JSON lines {\"text\"}: accuracy of each text's last token", .make = make_lambada},
    TaskKind{.name = "choices",
             .file = "JSON lines {\"context\", \"choices\", \"answer\"}, or the files of HellaSwag, PIQA, ARC or MMLU: "
                     "accuracy of the likeliest choice",
             .make = make_choices},
};

static_assert(same_names(kTasks, kEvaluationTasks), "base/core/evaluation_tasks.h names other tasks");

}  // namespace

double EvaluationResult::perplexity() const {
  return std::exp(std::min(20.0, loss));
}

std::span<const TaskKind> task_kinds() {
  return kTasks;
}

const TaskKind& task_kind(std::string_view name) {
  const auto found =
      std::find_if(kTasks.begin(), kTasks.end(), [&](const TaskKind& kind) { return kind.name == name; });
  if (found == kTasks.end()) {
    std::vector<std::string_view> names;
    for (const TaskKind& kind : kTasks) names.push_back(kind.name);
    fail(ErrorKind::configuration, "there is no task \"{}\"; there are: {}", printable(name), fmt::join(names, ", "));
  }
  return *found;
}

}  // namespace megatron
