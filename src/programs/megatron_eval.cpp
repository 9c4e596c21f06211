// megatron_eval SOURCE --task NAME --data FILE: an evaluation task on a run's newest checkpoint (or one checkpoint
// folder), saved on any layout, on any number of ranks.
//
//   scripts/launch.sh 4 ./megatron_eval runs/books --task lambada --data lambada_test.jsonl --output lambada.json
#include <cmath>
#include <iostream>

#include "base/named_rows.h"
#include "base/timers.h"
#include "comm/agreement.h"
#include "evaluation/result_text.h"
#include "inference/scorer.h"
#include "job/node_memory.h"
#include "monitor/progress.h"
#include "programs/model_options.h"
#include "programs/program.h"
#include "system/durable_file.h"
#include "system/log.h"
#include "system/regular_file.h"
#include "train/compute.h"
#include "train/evaluation_tasks.h"
#include "train/grid.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  ModelOptions model;
  std::string task, data, output;
  std::int64_t micro_batch_size = 4, stride = 0;
  bool strict = false, version = false, help = false;
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options");
  add_source_option(described, arguments.model, "SOURCE");
  auto add = described.add_options();
  add("task", po::value(&arguments.task)->value_name("NAME"), "what is evaluated: see below");
  add("data", po::value(&arguments.data)->value_name("FILE"), "the task's file");
  add("output", po::value(&arguments.output)->value_name("FILE"), "writes the result there, as JSON");
  add("stride", po::value(&arguments.stride)->value_name("N"),
      "wikitext: tokens from one window to the next; each token is predicted from all that its window has in front of "
      "it, at least the context less N; default: 32");
  add("strict", po::bool_switch(&arguments.strict), "lambada: the whole last word, not the last token alone");
  add("micro-batch-size", po::value(&arguments.micro_batch_size)->default_value(4)->value_name("B"),
      "sequences that a rank computes at a time: more of them take more memory, and change nothing but rounding");
  add_model_options(described, arguments.model, "examples");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

void print_help() {
  Arguments unused;
  std::cout << "usage: megatron_eval SOURCE --task NAME --data FILE [options]\n\n" << options(unused) << "\nTasks:\n";
  for (const TaskKind& kind : task_kinds()) std::cout << fmt::format("  {:<10} {}\n", kind.name, kind.file);
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
  task_kind(arguments.task);
  const EvaluationTaskRow& kind = row_named(kEvaluationTasks, arguments.task);
  require(!arguments.data.empty(), "give --data FILE");
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
  EvaluationProgress(Log& log, std::int64_t sequences) : log_(log), sequences_(sequences) {}
  ~EvaluationProgress() { log_.show_status(""); }

  void show(std::int64_t done) {
    const double seconds = watch_.elapsed_seconds(),
                 share = static_cast<double>(done) / static_cast<double>(sequences_);
    log_.show_status(fmt::format("{} of {} sequences ({:.0f} %), {} left", done, sequences_, std::floor(100 * share),
                                 format_duration(seconds / share - seconds)));
  }

 private:
  Log& log_;
  std::int64_t sequences_;
  Timers watch_;
};

void evaluate(const Arguments& arguments, MpiSession& session) {
  Communicator& world = session.world();
  Log log(world.rank() == 0);
  agree(world, [&] {  // not after an hour
    if (world.rank() == 0) check_output_file("--output", arguments.output);
  });
  std::vector<std::string> warnings;
  const CheckpointReader checkpoint = open_named_checkpoint(world, arguments.model.source, warnings);
  const ModelOptions& model = arguments.model;
  Config config = config_for_scoring(checkpoint, {.ranks = world.size(),
                                                  .tensor = model.tensor,
                                                  .pipeline = model.pipeline,
                                                  .micro_batch_size = arguments.micro_batch_size,
                                                  .precision = model.precision});
  config.run = choose_device(model.run(), world, warnings);
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));

  const std::unique_ptr<EvaluationTask> task = make_task(arguments, checkpoint, config, world);
  std::int64_t longest = 1;
  for (const ScoredSequence& sequence : task->sequences()) {
    longest = std::max(longest, static_cast<std::int64_t>(sequence.tokens.size()) - 1);
  }
  Compute compute = start_compute(config.run, world, session.host(), session.local_rank());
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  const MemoryUse plan = plan_scoring(config, grid.shape(), grid.at(), longest, compute.transport_kind);
  require_memory(world, session.host(), *compute.backend.device, {.device = plan.total(), .host = plan.host},
                 "use fewer ranks per node, more --tensor or --pipeline ranks, a smaller --micro-batch-size, or "
                 "--precision bf16");
  Scorer scorer(config, grid, compute.backend, longest);
  scorer.load(checkpoint);
  const auto sequences = static_cast<std::int64_t>(task->sequences().size());
  std::vector<TargetScore> scores;
  {
    EvaluationProgress progress(log, sequences);
    scores = scorer.score(task->sequences(), [&](std::int64_t done) { progress.show(done); });
  }
  const EvaluationResult result = task->result(scores);
  if (result.shortened > 0) {
    log.warning(
        "{} of {} examples are longer than the model's context of {} tokens; the beginning of theirs was left "
        "out",
        result.shortened, result.examples, config.model.sequence_length);
  }
  if (world.rank() == 0) std::cout << result_table(result) << std::flush;
  agree(world, [&] {
    if (world.rank() == 0 && !arguments.output.empty()) {
      write_output_file(arguments.output, result_json(result).dump(2) + "\n");
    }
  });
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
    evaluate(arguments, session);
    return 0;
  });
}
