#include "config/parse/read_evaluation_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/named_rows.h"
#include "base/text/expand_path.h"
#include "config/parse/read_value.h"
#include "config/schema/suggestions.h"

namespace megatron {
namespace {

constexpr std::int64_t kMost = 1'000'000'000'000;

/// One table of the list; `problem` is the first thing that is wrong in it.
class EntryReader {
 public:
  explicit EntryReader(std::string place) : place_(std::move(place)) {}

  const std::string& problem() const { return problem_; }

  EvaluationTaskConfig read(const toml::node& node) {
    EvaluationTaskConfig entry;
    if (!node.is_table()) {
      set("", fmt::format("expected table {{task = \"...\", data = \"...\"}}, got {}", type_name(node)));
      return entry;
    }
    for (auto&& [key, value] : *node.as_table()) read_member(std::string(key.str()), value, entry);
    if (!problem_.empty()) return entry;
    if (entry.task.empty()) set("", fmt::format("needs a task: {}", fmt::join(names_of(kEvaluationTasks), ", ")));
    if (entry.data.empty()) set("", "needs data, the file of the task");
    if (problem_.empty()) check_task(entry);
    if (entry.name.empty()) entry.name = entry.task;
    return entry;
  }

 private:
  void set(const std::string& member, const std::string& problem) {
    if (problem_.empty()) problem_ = fmt::format("{}{}: {}", place_, member, problem);
  }

  void read_member(const std::string& key, const toml::node& value, EvaluationTaskConfig& entry) {
    const std::string member = "." + key;
    if (key == "name") {
      text(value, member, entry.name);
      if (entry.name.find_first_of("\n\r\t") != std::string::npos || entry.name.size() > 64) {
        set(member, "a name has at most 64 bytes and one line");
      }
    } else if (key == "task") {
      text(value, member, entry.task);
    } else if (key == "data") {
      text(value, member, entry.data);
      const std::string trouble = expand_path(entry.data);
      if (!trouble.empty()) set(member, trouble);
    } else if (key == "every") {
      integer(value, member, 0, entry.every);
    } else if (key == "stride") {
      integer(value, member, 1, entry.stride);
    } else if (key == "strict") {
      if (!value.is_boolean()) return set(member, fmt::format("expected true or false, got {}", type_name(value)));
      entry.strict = value.as_boolean()->get();
    } else {
      set("", fmt::format("unknown key '{}'; a task has name, task, data and every, wikitext and text also stride, "
                          "lambada also strict",
                          key));
    }
  }

  void text(const toml::node& node, const std::string& member, std::string& to) {
    to = node.value_exact<std::string>().value_or("");
    if (!node.is_string()) {
      set(member, fmt::format("expected string, got {}", type_name(node)));
    } else if (to.empty()) {
      set(member, "is empty");
    }
  }

  void integer(const toml::node& node, const std::string& member, std::int64_t least, std::int64_t& to) {
    const std::optional<std::int64_t> value = whole_number(node);
    if (!value) return set(member, fmt::format("expected integer, got {}", type_name(node)));
    to = *value;
    if (to < least || to > kMost) set(member, fmt::format("{} is out of range: from {} to 10^12", to, least));
  }

  void check_task(const EvaluationTaskConfig& entry) {
    const EvaluationTaskRow* const row = find_row(kEvaluationTasks, entry.task);
    if (row == nullptr) {
      const std::vector<std::string> names = names_of(kEvaluationTasks);
      const std::string near = suggest_choice(entry.task, names);
      return set(".task", fmt::format("\"{}\" is not one of \"{}\"{}", entry.task, fmt::join(names, "\", \""),
                                      near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
    if (entry.stride > 0 && !row->has_stride) set(".stride", "belongs to tasks \"wikitext\" and \"text\"");
    if (entry.strict && !row->has_whole_word) set(".strict", "belongs to task \"lambada\"");
  }

  const std::string place_;
  std::string problem_;
};

}  // namespace

std::string read_evaluation_tasks(const toml::array& entries, const std::string& key,
                                  std::vector<EvaluationTaskConfig>& field) {
  std::vector<EvaluationTaskConfig> tasks;
  for (const toml::node& node : entries) {
    EntryReader reader(fmt::format("{}[{}]", key, tasks.size()));
    tasks.push_back(reader.read(node));
    if (!reader.problem().empty()) return reader.problem();
  }
  field = std::move(tasks);
  return "";
}

}  // namespace megatron
