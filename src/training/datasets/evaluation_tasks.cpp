#include "training/datasets/evaluation_tasks.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text/text.h"
#include "data/finetuning/example_files.h"
#include "data/tokenizer_kinds/byte_tokenizer.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

std::shared_ptr<const Tokenizer> tokenizer_for_tasks(const Datasets& datasets) {
  std::shared_ptr<const Tokenizer> tokenizer = datasets.tokenizer();
  verify(
      tokenizer != nullptr, ErrorKind::data,
      "evaluation.tasks need the vocabulary that {} was made with (\"{}\"), and its files are not next to the shards; "
      "put them there, or leave the tasks out",
      datasets.train_path(), datasets.vocabulary().tokenizer);
  return tokenizer;
}

TaskOptions options_of(const EvaluationTaskConfig& entry) {
  return {.task = entry.task, .path = entry.data, .stride = entry.stride, .whole_word = entry.strict};
}

std::string counted_targets(const EvaluationTask& task) {
  std::int64_t targets = 0;
  for (const ScoredSequence& sequence : task.sequences()) targets += sequence.targets();
  return fmt::format("{}, {}", counted(static_cast<std::int64_t>(task.sequences().size()), "sequence"),
                     counted(targets, "target"));
}

}  // namespace

std::string read_task_file(const std::string& path, Communicator& world) {
  std::string text;
  agree(world, [&] {
    if (world.rank() == 0) text = read_example_file(path);
  });
  return world.broadcast_text(text, 0);
}

TaskInput::Pair encode_pair(Encoder& encoder, std::string_view context, std::string_view target) {
  TaskInput::Pair pair;
  if (context.empty()) {
    encoder.encode(target, pair.ids);
    return pair;
  }
  std::vector<std::uint32_t> part_of;
  encoder.encode_parts(std::array{TextPart{context}, TextPart{target}}, pair.ids, part_of);
  pair.context = static_cast<std::size_t>(std::count(part_of.begin(), part_of.end(), 0U));
  return pair;
}

std::unique_ptr<EvaluationTask> make_evaluation_task(const TaskOptions& options, std::string_view text,
                                                     const Tokenizer& tokenizer, std::int64_t context) {
  const std::unique_ptr<Encoder> encoder = tokenizer.make_encoder();
  TaskInput input{
      .path = options.path,
      .text = text,
      .context = context,
      .before = tokenizer.eod_id(),
      .begin = options.begin,
      .stride = {},
      .whole_word = options.whole_word,
      .labels = options.labels,
      .encode = [&](std::string_view start, std::string_view target) { return encode_pair(*encoder, start, target); }};
  if (options.stride > 0) input.stride = options.stride;
  return task_kind(options.task).make(input);
}

std::vector<TrainingTask> open_evaluation_tasks(const Config& config, const Datasets& datasets, Communicator& world) {
  std::vector<TrainingTask> tasks;
  if (config.evaluation.tasks.empty()) return tasks;
  std::shared_ptr<const Tokenizer> tokenizer;
  agree(world, [&] { tokenizer = tokenizer_for_tasks(datasets); });
  for (const EvaluationTaskConfig& entry : config.evaluation.tasks) {
    const std::string text = read_task_file(entry.data, world);
    agree(world, [&] {
      tasks.push_back({entry, make_evaluation_task(options_of(entry), text, *tokenizer, config.model.sequence_length),
                       XXH3_64bits(text.data(), text.size())});
    });
  }
  return tasks;
}

std::string describe_evaluation_tasks(const Config& config, const Datasets* datasets) {
  std::string lines;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!config.evaluation.tasks.empty() && datasets != nullptr) tokenizer = tokenizer_for_tasks(*datasets);
  for (const EvaluationTaskConfig& entry : config.evaluation.tasks) {
    const std::string when = entry.every > 0 ? fmt::format("every {} and at the end",
                                                           entry.every == 1 ? "step" : counted(entry.every, "step"))
                                             : "at the end";
    std::string what = "planned without its file, which is not there";
    if (tokenizer != nullptr) {
      what = counted_targets(*make_evaluation_task(options_of(entry), read_example_file(entry.data), *tokenizer,
                                                   config.model.sequence_length));
    } else if (std::error_code ignored; std::filesystem::exists(entry.data, ignored)) {
      // The number of tokens is not known, so any length is accepted: a context that holds all bytes refuses none.
      const std::string text = read_example_file(entry.data);
      make_evaluation_task(options_of(entry), text, ByteTokenizer(), static_cast<std::int64_t>(text.size()) + 2);
      what = "its file is of the right form";
    }
    lines += fmt::format("task {} ({} of {}): {}, {}\n", entry.name, entry.task, entry.data, what, when);
  }
  return lines;
}

}  // namespace megatron
