#include "config/schema/task.h"

namespace megatron {

std::vector<std::string> numbered_labels(std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(std::to_string(i));
  return labels;
}

std::vector<std::string> labels_of(const TaskConfig& task) {
  if (task.name != "classification") return {};
  if (task.format == "mnli") return {"contradiction", "entailment", "neutral"};
  if (task.format == "qqp") return numbered_labels(2);
  return task.labels;
}

std::int64_t task_outputs(const TaskConfig& task) {
  if (task.name == "multiple_choice") return 1;
  return static_cast<std::int64_t>(labels_of(task).size());
}

void derive_head(Config& config) {
  config.model.task_outputs = task_outputs(config.task);
  config.model.task_choices = config.task.name == "multiple_choice" ? config.task.choices : 1;
}

}  // namespace megatron
