// megatron_eval SOURCE --task NAME --data FILE: an evaluation task on a run's newest checkpoint (or one checkpoint
// folder), saved on any layout, on any number of ranks.
//
//   scripts/launch.sh 4 ./megatron_eval runs/books --task lambada --data lambada_test.jsonl --output lambada.json
//   scripts/launch.sh 4 ./megatron_eval runs/mnli --task classification --data dev_matched.tsv
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/core/timers.h"
#include "base/system/durable_file.h"
#include "base/system/log.h"
#include "base/system/regular_file.h"
#include "base/text/text.h"
#include "config/schema/task.h"
#include "data/evaluation_tasks/result_text.h"
#include "data/finetuning/example_files.h"
#include "distributed/comm/agreement.h"
#include "distributed/process/node_memory.h"
#include "inference/decoding/label_scorer.h"
#include "inference/decoding/scorer.h"
#include "monitoring/metrics/progress.h"
#include "programs/eval_arguments.h"
#include "programs/label_result.h"
#include "programs/program.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/step/compute.h"
#include "training/step/grid.h"

namespace megatron {
namespace {

struct TaskOfFile {
  std::unique_ptr<EvaluationTask> task;
  std::string begin_token;  ///< that stands in front of every text; empty: none
};

TaskOfFile make_task(const EvalArguments& arguments, const CheckpointReader& checkpoint, const Config& config,
                     Communicator& world) {
  const std::string text = read_task_file(arguments.data, world);
  const std::string labels = arguments.labels.empty() ? "" : read_task_file(arguments.labels, world);
  verify(arguments.labels.empty() || !labels.empty(), ErrorKind::data, "{} is empty", arguments.labels);
  TaskOfFile made;
  agree(world, [&] {
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, arguments.model);
    const std::optional<std::int32_t> begin = chosen_begin_token(arguments.begin_token, checkpoint, *tokenizer);
    if (begin)
      made.begin_token = *begin == tokenizer->eod_id() ? tokenizer->eod_text() : tokenizer->decode_next(*begin);
    const TaskOptions options{arguments.task, arguments.data, arguments.stride, arguments.strict, begin, labels};
    made.task = make_evaluation_task(options, text, *tokenizer, config.model.sequence_length);
  });
  return made;
}

// A line on a terminal, drawn again after each pass.
class EvaluationProgress {
 public:
  EvaluationProgress(Log& log, const char* what, std::int64_t all) : log_(log), what_(what), all_(all) {
    log_.show_status(fmt::format("0 of {} {}", all, what));
  }
  ~EvaluationProgress() { log_.show_status(""); }

  void show(std::int64_t done) {
    const double seconds = watch_.elapsed_seconds(), share = static_cast<double>(done) / static_cast<double>(all_);
    log_.show_status(fmt::format("{} of {} {} ({:.0f} %), {} left", done, all_, what_, std::floor(100 * share),
                                 format_duration(seconds / share - seconds)));
  }

 private:
  Log& log_;
  const char* what_;
  std::int64_t all_;
  Timers watch_;
};

/// The beginning and the end that both kinds of tasks share.
struct Evaluation {
  const EvalArguments& arguments;
  MpiSession& session;
  Communicator& world;
  Log log;

  Evaluation(const EvalArguments& given, MpiSession& started)
      : arguments(given), session(started), world(started.world()), log(started.rank() == 0) {}

  CheckpointReader open() {
    agree(world, [&] {  // not after an hour
      if (world.rank() != 0) return;
      check_output(arguments.output);
      check_output(arguments.predictions);
    });
    std::vector<std::string> warnings;
    CheckpointReader checkpoint = open_named_checkpoint(world, arguments.model.source, warnings);
    for (const std::string& warning : warnings) log.warning(std::string_view(warning));
    return checkpoint;
  }
  RunConfig run() {
    std::vector<std::string> warnings;
    RunConfig chosen = choose_device(arguments.model.run(), world, warnings);
    for (const std::string& warning : warnings) log.warning(std::string_view(warning));
    return chosen;
  }
  void require(const MemoryUse& plan, const Compute& compute) {
    require_memory(world, session.host(), *compute.backend.device, {.device = plan.total(), .host = plan.host},
                   "use fewer ranks per node, more --tensor or --pipeline ranks, a smaller --micro-batch-size, or "
                   "--precision bf16");
  }
  void finish(const std::string& table, const nlohmann::ordered_json& json, const std::string& predictions = "") {
    if (world.rank() == 0) std::cout << table << std::flush;
    agree(world, [&] {
      if (world.rank() != 0) return;
      write_output(arguments.output, json.dump(2) + "\n");
      write_output(arguments.predictions, predictions);
    });
  }
};

void evaluate(const EvalArguments& arguments, MpiSession& session) {
  Evaluation here(arguments, session);
  Communicator& world = here.world;
  const CheckpointReader checkpoint = here.open();
  Config config = config_for_scoring(checkpoint, arguments.layout(world.size()));
  config.run = here.run();

  const auto [task, begin] = make_task(arguments, checkpoint, config, world);
  std::int64_t longest = 1;
  for (const ScoredSequence& sequence : task->sequences()) {
    longest = std::max(longest, static_cast<std::int64_t>(sequence.tokens.size()) - 1);
  }
  Compute compute = start_compute(config.run, config.precision.dtype(), world, session.host(), session.local_rank());
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  here.require(plan_scoring(config, grid.shape(), grid.at(), longest, compute.transport_kind), compute);
  Scorer scorer(config, grid, compute.backend, longest);
  scorer.load(checkpoint);
  std::vector<TargetScore> scores;
  {
    EvaluationProgress progress(here.log, "sequences", static_cast<std::int64_t>(task->sequences().size()));
    scores = scorer.score(task->sequences(), [&](std::int64_t done) { progress.show(done); });
  }
  const EvaluationResult result = task->result(scores);
  if (result.shortened > 0) {
    here.log.warning(
        "{} of {} examples are longer than the model's context of {} tokens; the beginning of theirs was left "
        "out",
        result.shortened, result.examples, config.model.sequence_length);
  }
  nlohmann::ordered_json json = result_json(result);
  if (!begin.empty()) json["begin_token"] = begin;
  here.finish(result_table(json), json);
}

// ---- Models with the head of a task ---------------------------------------------------------------------------------

/// The file, or the files of a folder, which rank 0 reads.
std::shared_ptr<const EncodedExamples> read_examples(const EvalArguments& arguments, const CheckpointReader& checkpoint,
                                                     const Config& config, Communicator& world) {
  std::string names;
  agree(world, [&] {
    if (world.rank() != 0) return;
    names = fmt::format("{}",
                        fmt::join(example_files(arguments.data, std::string(example_file_ending(config.task))), "\n"));
  });
  std::istringstream list(world.broadcast_text(names, 0));
  std::shared_ptr<EncodedExamples> examples;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Encoder> encoder;
  agree(world, [&] {
    tokenizer = tokenizer_of(checkpoint, arguments.model);
    encoder = tokenizer->make_encoder();
    examples =
        std::make_shared<EncodedExamples>(*tokenizer, columns_of_example(config.task), config.model.sequence_length);
  });
  for (std::string path; std::getline(list, path);) {
    const std::string text = read_task_file(path, world);
    const bool may_lack_labels = !arguments.predictions.path.empty();
    agree(world, [&] { add_labelled_examples(config.task, {path, text}, *encoder, *examples, may_lack_labels); });
  }
  return examples;
}

/// The model's task with files of another form, whose labels must be the model's.
TaskConfig with_format(const TaskConfig& task, const std::string& format) {
  const std::vector<std::string> labels = labels_of(task);
  TaskConfig other = task;
  other.format = format;
  const bool choice = task.name == "multiple_choice";
  const std::vector<std::string> formats =
      choice ? std::vector<std::string>{"json", "race"} : std::vector<std::string>{"json", "tsv", "mnli", "qqp"};
  verify(std::find(formats.begin(), formats.end(), format) != formats.end(), ErrorKind::configuration,
         "--format {}: --task {} reads {}", printable(format), task.name,
         choice ? "json and race" : "json, tsv, mnli and qqp");
  if (!choice && (format == "json" || format == "tsv")) other.labels = labels;
  verify(labels_of(other) == labels, ErrorKind::configuration, "--format {}: its labels are {}, and the model's are {}",
         format, fmt::join(labels_of(other), ", "), fmt::join(labels, ", "));
  return other;
}

void evaluate_labels(const EvalArguments& arguments, MpiSession& session) {
  Evaluation here(arguments, session);
  Communicator& world = here.world;
  const CheckpointReader checkpoint = here.open();
  Config config = config_for_labels(checkpoint, arguments.layout(world.size()), arguments.task);
  if (!arguments.format.empty()) config.task = with_format(config.task, arguments.format);
  config.run = here.run();
  const std::shared_ptr<const EncodedExamples> examples = read_examples(arguments, checkpoint, config, world);
  if (examples->truncated() > 0) {
    here.log.warning(
        "{} of {} examples are longer than the model's sequences of {} tokens; the ends of their texts "
        "were left out",
        examples->truncated(), examples->size(), config.model.sequence_length);
  }
  LabelledSamples samples(examples, LabelledSamples::Order::sequential, 0);
  Compute compute = start_compute(config.run, config.precision.dtype(), world, session.host(), session.local_rank());
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  here.require(plan_labels(config, grid.shape(), grid.at(), compute.transport_kind), compute);
  LabelScorer scorer(config, grid, compute.backend);
  scorer.load(checkpoint);
  LabelResult result;
  {
    EvaluationProgress progress(here.log, "examples", static_cast<std::int64_t>(examples->size()));
    result =
        scorer.score(samples, !arguments.predictions.path.empty(), [&](std::int64_t done) { progress.show(done); });
  }
  if (world.rank() != 0) return here.finish("", {});
  const bool labelled = examples->label(0) >= 0;
  const std::vector<std::string> names =
      arguments.task == "classification" ? labels_of(config.task) : numbered_labels(config.task.choices);
  const nlohmann::ordered_json json = label_json(arguments.task, names, labelled, result);
  here.finish(label_table(json), json, prediction_lines(arguments.task, names, result));
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  EvalArguments arguments;
  const int code = run_alone([&] {
    arguments = parse_eval_arguments(argc, argv);
    if (arguments.help) std::cout << eval_usage();
    if (!arguments.help && arguments.version) std::cout << version_report("megatron_eval");
    return 0;
  });
  if (code != 0 || arguments.help || arguments.version) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) {
    arguments.of_labels() ? evaluate_labels(arguments, session) : evaluate(arguments, session);
    return 0;
  });
}
