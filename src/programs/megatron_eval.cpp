// megatron_eval SOURCE --task NAME --data FILE: an evaluation task on a run's newest checkpoint (or one checkpoint
// folder), saved on any layout, on any number of ranks.
//
//   scripts/launch.sh 4 ./megatron_eval runs/books --task lambada --data lambada_test.jsonl --output lambada.json
//   scripts/launch.sh 4 ./megatron_eval runs/mnli --task classification --data dev_matched.tsv
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/named_rows.h"
#include "base/timers.h"
#include "comm/agreement.h"
#include "config/task.h"
#include "evaluation/result_text.h"
#include "examples/example_files.h"
#include "inference/label_scorer.h"
#include "inference/scorer.h"
#include "job/node_memory.h"
#include "monitor/progress.h"
#include "programs/model_options.h"
#include "programs/program.h"
#include "system/durable_file.h"
#include "system/log.h"
#include "system/regular_file.h"
#include "text/text.h"
#include "train/compute.h"
#include "train/evaluation_tasks.h"
#include "train/grid.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  ModelOptions model;
  std::string task, data, output, format;
  std::int64_t micro_batch_size = 4, stride = 0;
  bool strict = false, version = false, help = false;

  /// Whether the model's own head tells labels apart; else it predicts next tokens.
  bool of_labels() const { return task == "classification" || task == "multiple_choice"; }
  ScoringLayout layout(int ranks) const {
    return {.ranks = ranks,
            .tensor = model.tensor,
            .pipeline = model.pipeline,
            .micro_batch_size = micro_batch_size,
            .precision = model.precision};
  }
};

std::vector<std::string_view> names_of_tasks() {
  std::vector<std::string_view> names;
  for (const TaskKind& kind : task_kinds()) names.push_back(kind.name);
  names.insert(names.end(), {"classification", "multiple_choice"});
  return names;
}

po::options_description options(Arguments& arguments) {
  po::options_description described("Options");
  add_source_option(described, arguments.model, "SOURCE");
  auto add = described.add_options();
  add("task", po::value(&arguments.task)->value_name(fmt::format("{}", fmt::join(names_of_tasks(), "|"))),
      "what is evaluated: see below");
  add("data", po::value(&arguments.data)->value_name("FILE"), "the task's file");
  add("output", po::value(&arguments.output)->value_name("FILE"), "writes the result there, as JSON");
  add("stride", po::value(&arguments.stride)->value_name("N"),
      "wikitext: tokens from one window to the next; each token is predicted from all that its window has in front of "
      "it, at least the context less N; default: 32");
  add("strict", po::bool_switch(&arguments.strict), "lambada: the whole last word, not the last token alone");
  add("format", po::value(&arguments.format)->value_name("json|race|mnli|qqp"),
      "classification, multiple_choice: form of the file, as task.format; default: that of the training");
  add("micro-batch-size", po::value(&arguments.micro_batch_size)->default_value(4)->value_name("B"),
      "sequences, with multiple_choice questions, that a rank computes at a time: more of them take more memory, and "
      "change nothing but rounding");
  add_model_options(described, arguments.model, "examples");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

void print_help() {
  Arguments unused;
  std::cout << "usage: megatron_eval SOURCE --task NAME --data FILE [options]\n\n" << options(unused) << "\nTasks:\n";
  for (const TaskKind& kind : task_kinds()) std::cout << fmt::format("  {:<16} {}\n", kind.name, kind.file);
  std::cout << fmt::format("  {:<16} {}\n  {:<16} {}\n", "classification",
                           "labelled texts, for a model that was fine-tuned to tell their labels: accuracy",
                           "multiple_choice", "questions with choices, for a model that was fine-tuned: accuracy");
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  po::positional_options_description positional;
  positional.add("source", 1);
  const po::variables_map values = parse_command_line(argc, argv, options(arguments), positional, [](const auto& word) {
    return fmt::format("a file to evaluate is given as --data {}", word);
  });
  if (arguments.help || arguments.version) return arguments;
  const auto require = [](bool condition, const char* message) {
    verify(condition, ErrorKind::configuration, "{}; see --help", message);
  };
  require(!arguments.model.source.empty(), "give a run directory: megatron_eval RUN_DIRECTORY --task NAME --data FILE");
  require(!arguments.task.empty(), "give --task NAME");
  std::vector<std::string_view> names = names_of_tasks();
  verify(std::find(names.begin(), names.end(), arguments.task) != names.end(), ErrorKind::configuration,
         "there is no task \"{}\"; there are: {}", printable(arguments.task), fmt::join(names, ", "));
  const EvaluationTaskRow* const row = find_row(kEvaluationTasks, arguments.task);
  const EvaluationTaskRow kind = row != nullptr ? *row : EvaluationTaskRow{};
  require(!arguments.data.empty(), "give --data FILE");
  require(arguments.of_labels() || arguments.format.empty(),
          "--format belongs to --task classification and multiple_choice");
  require(kind.has_stride || values.count("stride") == 0, "--stride belongs to --task wikitext");
  require(values.count("stride") == 0 || arguments.stride > 0, "--stride: 1 or more");
  require(kind.has_whole_word || !arguments.strict, "--strict belongs to --task lambada");
  require(arguments.micro_batch_size > 0 && arguments.micro_batch_size <= 1 << 20, "--micro-batch-size: 1 to 1048576");
  check_model_options(arguments.model);
  return arguments;
}

std::unique_ptr<EvaluationTask> make_task(const Arguments& arguments, const CheckpointReader& checkpoint,
                                          const Config& config, Communicator& world) {
  const std::string text = read_task_file(arguments.data, world);
  std::unique_ptr<EvaluationTask> task;
  agree(world, [&] {
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, arguments.model);
    const TaskOptions options{arguments.task, arguments.data, arguments.stride, arguments.strict};
    task = make_evaluation_task(options, text, *tokenizer, config.model.sequence_length);
  });
  return task;
}

// A line on a terminal, drawn again after each pass.
class EvaluationProgress {
 public:
  EvaluationProgress(Log& log, const char* what, std::int64_t all) : log_(log), what_(what), all_(all) {}
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

/// What both kinds of tasks begin and end with.
struct Evaluation {
  const Arguments& arguments;
  MpiSession& session;
  Communicator& world;
  Log log;

  Evaluation(const Arguments& given, MpiSession& started)
      : arguments(given), session(started), world(started.world()), log(started.rank() == 0) {}

  CheckpointReader open() {
    agree(world, [&] {  // not after an hour
      if (world.rank() == 0) check_output_file("--output", arguments.output);
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
  void finish(const std::string& table, const nlohmann::ordered_json& json) {
    if (world.rank() == 0) std::cout << table << std::flush;
    agree(world, [&] {
      if (world.rank() == 0 && !arguments.output.empty()) write_output_file(arguments.output, json.dump(2) + "\n");
    });
  }
};

void evaluate(const Arguments& arguments, MpiSession& session) {
  Evaluation here(arguments, session);
  Communicator& world = here.world;
  const CheckpointReader checkpoint = here.open();
  Config config = config_for_scoring(checkpoint, arguments.layout(world.size()));
  config.run = here.run();

  const std::unique_ptr<EvaluationTask> task = make_task(arguments, checkpoint, config, world);
  std::int64_t longest = 1;
  for (const ScoredSequence& sequence : task->sequences()) {
    longest = std::max(longest, static_cast<std::int64_t>(sequence.tokens.size()) - 1);
  }
  Compute compute = start_compute(config.run, world, session.host(), session.local_rank());
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
  here.finish(result_table(result), result_json(result));
}

// ---- Models with the head of a task ---------------------------------------------------------------------------------

/// The file, or the files of a folder, which rank 0 reads.
std::shared_ptr<const EncodedExamples> read_examples(const Arguments& arguments, const CheckpointReader& checkpoint,
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
    agree(world, [&] { add_labelled_examples(config.task, {path, text}, *encoder, *examples); });
  }
  return examples;
}

/// The model's task with files of another form, whose labels must be the model's.
TaskConfig with_format(const TaskConfig& task, const std::string& format) {
  const std::vector<std::string> labels = labels_of(task);
  TaskConfig other = task;
  other.format = format;
  if (format == "json" && task.name == "classification") other.labels = labels;
  const bool of_task = format == "json" || (format == "race") == (task.name == "multiple_choice");
  verify(of_task && (format == "json" || format == "race" || format == "mnli" || format == "qqp"),
         ErrorKind::configuration, "--format {}: --task {} reads {}", printable(format), task.name,
         task.name == "multiple_choice" ? "json and race" : "json, mnli and qqp");
  verify(labels_of(other) == labels, ErrorKind::configuration, "--format {}: its labels are {}, and the model's are {}",
         format, fmt::join(labels_of(other), ", "), fmt::join(labels, ", "));
  return other;
}

nlohmann::ordered_json label_json(const Arguments& arguments, const Config& config, const LabelResult& result) {
  nlohmann::ordered_json json = {{"task", arguments.task},
                                 {"examples", result.counts.all_examples()},
                                 {"loss", result.loss},
                                 {"accuracy", result.counts.accuracy()}};
  const std::vector<std::string> names =
      arguments.task == "classification" ? labels_of(config.task) : numbered_labels(config.task.choices);
  for (std::size_t i = 0; i < names.size(); ++i) {
    json["labels"].push_back({{"label", names[i]},
                              {"examples", result.counts.examples[i]},
                              {"right", result.counts.right[i]},
                              {"chosen", result.counts.chosen[i]}});
  }
  return json;
}

std::string label_table(const nlohmann::ordered_json& json) {
  std::string table = fmt::format("{:<20} {}\n{:<20} {}\n{:<20} {:.6g}\n{:<20} {:.6g}\n\n", "task",
                                  json["task"].get<std::string>(), "examples", json["examples"].get<std::int64_t>(),
                                  "loss", json["loss"].get<double>(), "accuracy", json["accuracy"].get<double>());
  table += fmt::format("{:<20} {:>10} {:>10} {:>10}\n", "label", "examples", "right", "chosen");
  for (const auto& label : json["labels"]) {
    table += fmt::format("{:<20} {:>10} {:>10} {:>10}\n", label["label"].get<std::string>(),
                         label["examples"].get<std::int64_t>(), label["right"].get<std::int64_t>(),
                         label["chosen"].get<std::int64_t>());
  }
  return table;
}

void evaluate_labels(const Arguments& arguments, MpiSession& session) {
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
  Compute compute = start_compute(config.run, world, session.host(), session.local_rank());
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  here.require(plan_labels(config, grid.shape(), grid.at(), compute.transport_kind), compute);
  LabelScorer scorer(config, grid, compute.backend);
  scorer.load(checkpoint);
  LabelResult result;
  {
    EvaluationProgress progress(here.log, "examples", static_cast<std::int64_t>(examples->size()));
    result = scorer.score(samples, [&](std::int64_t done) { progress.show(done); });
  }
  const nlohmann::ordered_json json = label_json(arguments, config, result);
  here.finish(label_table(json), json);
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  Arguments arguments;
  const int code = run_alone([&] {
    arguments = parse_arguments(argc, argv);
    if (arguments.help) print_help();
    if (!arguments.help && arguments.version) std::cout << version_report("megatron_eval");
    return 0;
  });
  if (code != 0 || arguments.help || arguments.version) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) {
    arguments.of_labels() ? evaluate_labels(arguments, session) : evaluate(arguments, session);
    return 0;
  });
}
