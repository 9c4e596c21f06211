// Files of the evaluation tasks, read as bytes: refused by name and line, or sequences that fit the context and whose
// scores make a result. The first byte chooses the task and its options.
#include "data/evaluation_tasks/task.h"

#include <cmath>

#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

constexpr std::int64_t kContext = 16;

void check(const EvaluationTask& task) {
  std::vector<TargetScore> scores;
  fuzz::require(!task.sequences().empty(), "a task of nothing");
  for (const ScoredSequence& sequence : task.sequences()) {
    const auto tokens = static_cast<std::int64_t>(sequence.tokens.size());
    fuzz::require(tokens >= 2 && tokens <= kContext + 1, "a sequence that does not fit");
    fuzz::require(sequence.first_scored >= 1 && sequence.first_scored < tokens, "a target that has no context");
    scores.resize(scores.size() + static_cast<std::size_t>(sequence.targets()), {.log_probability = -1});
  }
  const EvaluationResult result = task.result(scores);
  fuzz::require(result.examples > 0 && std::isfinite(result.loss), "a result without a loss");
  for (const std::optional<double>& share : {result.accuracy, result.accuracy_normalized}) {
    fuzz::require(!share || (*share >= 0 && *share <= 1), "a share that is none");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const TaskKind> kinds = task_kinds();
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  TaskInput input;
  input.path = "file";
  input.text = text;
  input.context = kContext;
  input.before = 256;
  input.whole_word = data[0] % 2 == 1;
  input.encode = [](std::string_view context, std::string_view target) {  // ids are bytes
    TaskInput::Pair pair;
    pair.context = context.size();
    for (const std::string_view part : {context, target}) {
      for (const char c : part) pair.ids.push_back(static_cast<unsigned char>(c));
    }
    return pair;
  };
  fuzz::allow({ErrorKind::data}, [&] { check(*kinds[data[0] / 2 % kinds.size()].make(input)); });
  return 0;
}
