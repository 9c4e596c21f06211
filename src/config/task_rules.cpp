// Rules about [task], and about the keys of pretraining that a task has no use for.
#include <algorithm>
#include <set>

#include "config/print.h"
#include "config/schema.h"
#include "config/task.h"
#include "config/violations.h"

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

namespace {

/// Keys that have another value than their default.
std::vector<std::string> changed_keys_of(const Config& c, const std::vector<const char*>& names, const char* table) {
  std::vector<std::string> changed;
  for (const char* const name : names) {
    const Key& key = *find_key(table, name);
    if (print_value(key, c) != print_value(key, Config{})) changed.push_back(key.full_name());
  }
  return changed;
}

void check_family(const Config& c, Violations& violations) {
  const std::string wanted = c.task.has_head() ? "bert" : "gpt";
  if (c.model.family == wanted) return;
  violations.add({"task.name", "model.family"}, "task.name = \"{}\" is for model.family = \"{}\", not \"{}\"",
                 c.task.name, wanted, c.model.family);
}

void check_format(const Config& c, Violations& violations) {
  const std::string &task = c.task.name, &format = c.task.format;
  const std::string owner = format == "race" ? "multiple_choice" : "classification";
  if (format != "json" && task != owner) {
    violations.add({"task.format", "task.name"}, "task.format = \"{}\" is for task.name = \"{}\", not \"{}\"", format,
                   owner, task);
  }
}

void check_labels(const Config& c, Violations& violations) {
  const TaskConfig& task = c.task;
  const bool own = task.name == "classification" && (task.format == "json" || task.format == "tsv");
  if (own && task.labels.empty()) {
    violations.add({"task.labels"},
                   "task.name = \"classification\" needs task.labels: the names of the labels in the files, such as "
                   "[\"no\", \"yes\"], or how many there are, if they are called 0, 1 and so on");
  } else if (!own && !task.labels.empty()) {
    violations.add({"task.labels", "task.format", "task.name"},
                   "task.labels belongs to task.name = \"classification\" with task.format = \"json\" or "
                   "\"tsv\"; leave it out");
  }
  std::set<std::string> seen;
  for (const std::string& label : task.labels) {
    if (!seen.insert(label).second) violations.add({"task.labels"}, "task.labels has \"{}\" twice", label);
  }
}

void check_tokenizer(const Config& c, Violations& violations) {
  const TaskConfig& task = c.task;
  if (task.tokenizer.empty() && !task.vocab_file.empty()) {
    violations.add({"task.vocab_file", "task.tokenizer"},
                   "task.vocab_file = \"{}\" needs task.tokenizer, the kind of tokenizer that it is for",
                   task.vocab_file);
  }
  if (task.vocab_file.empty() && !task.merge_file.empty()) {
    violations.add({"task.merge_file", "task.vocab_file"}, "task.merge_file = \"{}\" needs task.vocab_file; give both",
                   task.merge_file);
  }
  if (task.extra_ids > 0 && task.tokenizer.empty()) {
    violations.add({"task.extra_ids", "task.tokenizer"},
                   "task.extra_ids = {} needs task.tokenizer, the tokenizer that they are added to", task.extra_ids);
  } else if (task.extra_ids > 0 && (task.tokenizer == "byte" || task.tokenizer == "gpt2")) {
    violations.add({"task.extra_ids", "task.tokenizer"},
                   "task.extra_ids = {}: the tokenizer \"{}\" has no sentinels; leave it out", task.extra_ids,
                   task.tokenizer);
  }
}

// Refuses settings of the token sets that data.train names for pretraining.
void check_data(const Config& c, Violations& violations) {
  std::vector<std::string> unused =
      changed_keys_of(c,
                      {"split", "split_by", "order", "order_samples", "reset_attention_mask", "reset_position_ids",
                       "eod_mask_loss", "mask_probability", "short_probability"},
                      "data");
  for (const std::string& key : changed_keys_of(c, {"name", "token_ids", "alpha"}, "loss")) unused.push_back(key);
  for (const std::string& key : changed_keys_of(c, {"curriculum"}, "train")) unused.push_back(key);
  for (const std::string& key : unused) {
    violations.add({key, "task.name"},
                   "{} is for pretraining, and task.name = \"{}\" makes its samples from examples; "
                   "leave it out",
                   key, c.task.name);
  }
  for (const std::string& key : changed_keys_of(c, {"evaluate_steps"}, "train")) {
    violations.add({key, "task.name"},
                   "{} cuts evaluations, and with task.name = \"{}\" each is of all examples of data.validation; leave "
                   "it out, or name fewer examples there",
                   key, c.task.name);
  }
  const auto weighted = [](const BlendPart& part) { return part.weight != 1 || !part.name.empty(); };
  for (const auto& [key, blend] :
       {std::pair("data.train", &c.data.train), {"data.validation", &c.data.validation}, {"data.test", &c.data.test}}) {
    if (std::none_of(blend->parts.begin(), blend->parts.end(), weighted)) continue;
    violations.add({key, "task.name"},
                   "{}: files of examples are put together and have no weights or names; list their paths alone", key);
  }
}

}  // namespace

void check_task(const Config& c, Violations& violations) {
  const TaskConfig defaults;
  std::vector<const char*> chat = {"system_prefix", "system_suffix",    "user_prefix",
                                   "user_suffix",   "assistant_prefix", "assistant_suffix"};
  if (!c.task.given()) {
    chat.insert(chat.end(), {"format", "labels", "choices", "tokenizer", "vocab_file", "merge_file", "extra_ids"});
    for (const std::string& key : changed_keys_of(c, chat, "task")) {
      violations.add({key, "task.name"}, "{} belongs to a task; give task.name, or leave it out", key);
    }
    return;
  }
  check_family(c, violations);
  check_format(c, violations);
  check_labels(c, violations);
  check_tokenizer(c, violations);
  check_data(c, violations);
  if (c.task.name != "multiple_choice" && c.task.choices != defaults.choices) {
    violations.add({"task.choices", "task.name"}, "task.choices belongs to task.name = \"multiple_choice\", not \"{}\"",
                   c.task.name);
  }
  if (c.task.name == "instructions") return;
  for (const std::string& key : changed_keys_of(c, chat, "task")) {
    violations.add({key, "task.name"}, "{} belongs to task.name = \"instructions\", not \"{}\"", key, c.task.name);
  }
}

}  // namespace megatron
