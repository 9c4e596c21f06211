// The evaluation tasks of a run: their files, read by rank 0 and made into sequences with the data's tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/evaluation_tasks/task.h"
#include "data/tokenizer/tokenizer.h"
#include "distributed/comm/communicator.h"
#include "training/datasets/datasets.h"

namespace megatron {

/// Rank 0 reads: other ranks' machines need not have the file. Collective; Error(data) on all ranks.
std::string read_task_file(const std::string& path, Communicator& world);

/// The options that a task is asked for with.
struct TaskOptions {
  std::string task, path;
  std::int64_t stride = 0;  ///< 0: the task's own
  bool whole_word = false;
  std::optional<std::int32_t> begin = {};  ///< token that begins every text
  std::string labels = {};                 ///< contents of a file of answers
};
/// As TaskInput has it.
TaskInput::Pair encode_pair(Encoder& encoder, std::string_view context, std::string_view target);
/// Error(data) with the line for what is wrong in `text`, the file's contents.
std::unique_ptr<EvaluationTask> make_evaluation_task(const TaskOptions& options, std::string_view text,
                                                     const Tokenizer& tokenizer, std::int64_t context);

/// An entry of evaluation.tasks that can be scored.
struct TrainingTask {
  EvaluationTaskConfig config;
  std::unique_ptr<EvaluationTask> task;
  std::uint64_t hash = 0;  ///< the file's
};

/// All of evaluation.tasks, in this order. Collective; throws the same Error on all ranks: data for files, and where
/// the vocabulary does not lie next to the shards.
std::vector<TrainingTask> open_evaluation_tasks(const Config& config, const Datasets& datasets, Communicator& world);

/// For a plan: a line about each of evaluation.tasks. Without `datasets` only the form of the files can be checked, and
/// those that are not there are taken as to come. Errors: as open_evaluation_tasks().
std::string describe_evaluation_tasks(const Config& config, const Datasets* datasets);

}  // namespace megatron
