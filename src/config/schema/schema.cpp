#include "config/schema/schema.h"

#include <array>

#include "config/schema/schema_keys.h"

namespace megatron {
namespace {

std::vector<Key> all_keys() {
  std::vector<Key> result;
  for (auto part : {model_keys(), moe_keys(), parallel_keys(), train_keys(), recipe_keys(), run_keys()}) {
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

}  // namespace

std::span<const Key> schema() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

std::span<const TableDescription> schema_tables() {
  static constexpr std::array<TableDescription, 14> tables = {{
      {"model", "The transformer."},
      {"moe", "Mixture of experts: docs/mixture_of_experts.md."},
      {"parallel", "How ranks share the work. The number of ranks is tensor × context × data × pipeline."},
      {"train", "Length of the run, batches, evaluation."},
      {"loss", "What is minimised."},
      {"precision", "Number formats."},
      {"recompute", "Memory for time."},
      {"optimizer", "How parameters are updated."},
      {"learning_rate",
       "Learning rate over the run. The rate of an update counts the batch being applied. Schedules count samples; "
       "with "
       "train.curriculum they count tokens if the run's length or one of the lengths below is in tokens."},
      {"data", "Training, validation and test data."},
      {"task", "What the model is fine-tuned to do: docs/fine_tuning.md."},
      {"evaluation", "Tasks that the model is evaluated on while it is trained: docs/evaluation.md."},
      {"checkpoint", "What is saved, and what a run starts from."},
      {"run", "Directory, device, threads, reports, limits."},
  }};
  return tables;
}

const Key* find_key(std::string_view table, std::string_view name) {
  for (const Key& key : schema()) {
    if (key.table == table && key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace megatron
