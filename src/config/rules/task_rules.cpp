// Rules about [task], and about the keys of pretraining that a task has no use for.
#include <algorithm>
#include <set>

#include "config/rules/violations.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "config/schema/task.h"

namespace megatron {

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

void check_labels(const Config& c, Violations& violations) {
  const TaskConfig& task = c.task;
  const bool own = task.name == "classification" && (task.format == "json" || task.format == "tsv");
  if (own && task.labels.empty()) {
    violations.add({"task.labels"},
                   "task.name = \"classification\" needs task.labels: the names of the labels in the files, such as "
                   "[\"no\", \"yes\"], or how many there are, if they are called 0, 1 and so on");
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
  if (!c.task.given()) return;
  check_labels(c, violations);
  check_tokenizer(c, violations);
  check_data(c, violations);
  if (c.task.has_head() && c.model.head_chunks > 1) {
    violations.add({"model.head_chunks", "task.name"},
                   "model.head_chunks is for logits of tokens, and with task.name = \"{}\" the model ends with a head "
                   "of the task; leave it out",
                   c.task.name);
  }
}

}  // namespace megatron
