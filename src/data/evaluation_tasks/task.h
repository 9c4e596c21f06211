// EvaluationTask: an evaluation as data and arithmetic. A task makes sequences of tokens from a file and says which of
// their tokens a model is to predict; from a score for each of these targets it makes the result. Knows no model, no
// ranks and no devices: inference/decoding/scorer.h makes the scores.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Its targets are tokens[first_scored] to the last one, each predicted from all tokens in front of it.
struct ScoredSequence {
  std::span<const std::int32_t> tokens;  ///< its owner's; at most one more than the model's context
  std::int64_t first_scored = 1;         ///< 1 .. tokens.size() - 1

  std::int64_t targets() const { return static_cast<std::int64_t>(tokens.size()) - first_scored; }
};

/// A model's score for one target.
struct TargetScore {
  double log_probability = 0;
  bool right = false;  ///< no other token has a larger logit
};

struct EvaluationResult {
  std::string task;
  std::int64_t examples = 0;   ///< windows, texts or questions
  std::int64_t tokens = 0;     ///< that the loss is the mean of
  double loss = 0;             ///< mean negative log-probability
  std::int64_t shortened = 0;  ///< examples whose context lost its beginning, since the model's is shorter
  std::optional<double> adjusted_perplexity = {}, token_ratio = {};  ///< wikitext
  std::optional<double> bits_per_byte = {}, bits_per_word = {};      ///< text
  std::optional<double> accuracy = {}, accuracy_normalized = {};     ///< lambada and choices; choices

  /// e^loss, but at most e^20.
  double perplexity() const;
};

class EvaluationTask {
 public:
  virtual ~EvaluationTask() = default;
  /// In the file's order, at least one. They live as long as the task.
  virtual std::span<const ScoredSequence> sequences() const = 0;
  /// `scores`: of all targets, in the order of the sequences and of their tokens.
  virtual EvaluationResult result(std::span<const TargetScore> scores) const = 0;
};

struct TaskInput {
  std::string path;          ///< the data's, for messages
  std::string_view text;     ///< the file's contents; needed while the task is made
  std::int64_t context = 0;  ///< most tokens that a target is predicted from
  std::int32_t before = 0;   ///< token that stands where a text has nothing in front of its target
  /// Token that begins every text, also one that is too long: then it stands in front of what is left.
  std::optional<std::int32_t> begin = {};
  std::optional<std::int64_t> stride;  ///< tokens from one window to the next, 1 .. context; default: the task's
  bool whole_word = false;
  std::string_view labels = {};  ///< number of the right choice on each line, where the questions' file has no answers
  /// The ids of context + target, encoded as one text, and how many of them are the context's.
  struct Pair {
    std::vector<std::int32_t> ids;
    std::size_t context = 0;
  };
  std::function<Pair(std::string_view context, std::string_view target)> encode;
};

struct TaskKind {
  std::string_view name, file;  ///< `file`: what the data is, one line
  /// Error(data) with the number of the line for what is wrong in the text.
  std::unique_ptr<EvaluationTask> (*make)(const TaskInput& input);
};

/// All there are. A new task is a row here and in base/core/evaluation_tasks.h, which has their options.
std::span<const TaskKind> task_kinds();
/// Error(configuration) that lists the tasks, if there is none of this name.
const TaskKind& task_kind(std::string_view name);

}  // namespace megatron
