// megatron_train INPUT.toml: trains, or resumes, what the input file says.
//
//   mpirun -np 8 ./megatron_train inputs/demo.toml --set train.steps=50
//   mpirun -np 8 ./megatron_train inputs/demo.toml --verify
//   ./megatron_train inputs/gpt3_175b.toml --dry-run --ranks 1024
//   ./megatron_train inputs/gpt3_175b.toml --parameters --ranks 1024
//   ./megatron_train --new books.toml
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "base/system/disk_speed.h"
#include "base/system/log.h"
#include "config/parse/parse.h"
#include "config/schema/print.h"
#include "data/samples/samples.h"
#include "distributed/process/hang_watch.h"
#include "distributed/process/run_limits.h"
#include "planning/dry_run/dry_run.h"
#include "planning/layout_search/fit.h"
#include "programs/new_input.h"
#include "programs/program.h"
#include "programs/run_views.h"
#include "training/datasets/datasets.h"
#include "training/loop/run.h"
#include "training/loop/verify_layout.h"
#include "training/step/offload.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::string input, samples, new_file, fit;
  std::vector<std::string> overrides;
  int ranks = 0;
  RunViews views;
  bool dry_run = false, parameters = false, print_config = false;
  bool verify = false, fresh = false, version = false, help = false;

  bool makes_file() const { return !new_file.empty(); }
  bool plans() const { return dry_run || parameters || !fit.empty(); }
  /// Prints something of the input file, which needs neither MPI nor ranks.
  bool prints() const { return plans() || print_config || !samples.empty(); }
  bool answers_only() const { return makes_file() || prints() || views.any(); }
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options", kHelpColumns, kDescriptionColumns);
  auto add = described.add_options();
  add("input", po::value(&arguments.input)->value_name("INPUT.toml"),
      "the input file (inputs/README.md lists every key)");
  add("set", po::value(&arguments.overrides)->composing()->value_name("TABLE.KEY=VALUE"),
      "overrides a key of the input file; may be given several times");
  add("new", po::value(&arguments.new_file)->value_name("FILE.toml"),
      "asks what the run is to be, a key at a time, checks each answer, and writes a commented input file that must "
      "not exist yet. With cursor keys and earlier answers: rlwrap ./megatron_train --new FILE.toml");
  add("dry-run", po::bool_switch(&arguments.dry_run),
      "prints the plan: layout, batch, schedule, memory and traffic; starts nothing");
  add("parameters", po::bool_switch(&arguments.parameters),
      "prints all parameters of the model: shape, how it is cut over ranks, stages that hold it, update; starts "
      "nothing");
  add("fit", po::value(&arguments.fit)->value_name("16GiB"),
      "prints which micro-batches, recomputation and optimizer state bring a rank below this limit at the lowest "
      "price, in seconds a step at this machine's speed; starts nothing");
  add("ranks", po::value(&arguments.ranks)->value_name("N"), "with --dry-run, --parameters or --fit: for N ranks");
  add("verify", po::bool_switch(&arguments.verify),
      "compares some steps on these ranks with the same steps on one rank, and ends with 5 if they differ by more than "
      "rounding; writes nothing");
  add("fresh", po::bool_switch(&arguments.fresh),
      "starts over: where run.directory has a run already, trains from the beginning in the first of NAME_2, NAME_3, "
      "... "
      "that does not exist");
  add("print-config", po::bool_switch(&arguments.print_config),
      "prints every key that has a value; what is derived from ranks and data is in the run's config.toml");
  add("print-samples", po::value(&arguments.samples)->value_name("[FIRST:]COUNT"),
      "prints training samples in order as JSON lines: token ids, and the text where the data's tokenizer is there");
  add_run_views(described, arguments.views);
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  po::positional_options_description positional;
  positional.add("input", 1);
  const po::options_description described = options(arguments);
  const po::variables_map values = parse_command_line(argc, argv, described, positional, [](const auto& word) {
    const bool number = std::all_of(word.begin(), word.end(), ::isdigit);
    return number
               ? fmt::format("the number of ranks is the launcher's: scripts/launch.sh {} ./megatron_train ...", word)
               : std::string("there is one input file; its keys are set with --set TABLE.KEY=VALUE");
  });
  if (arguments.help || arguments.version) return arguments;
  check_run_views(arguments.views, arguments.input);
  const bool trains = arguments.prints() || arguments.verify || arguments.fresh || !arguments.overrides.empty() ||
                      values.count("ranks") > 0;
  if (values.count("new") > 0) {
    verify(arguments.makes_file(), ErrorKind::configuration, "--new: give the name of the file to make");
    verify(!trains && !arguments.views.any() && arguments.input.empty(), ErrorKind::configuration,
           "--new {}: asks for everything that the file will say; no other option goes with it", arguments.new_file);
    return arguments;
  }
  if (arguments.views.any()) {
    verify(!trains, ErrorKind::configuration,
           "--watch, --report and --tensorboard look at a run; options for training or planning do not go with them");
    return arguments;
  }
  verify(!arguments.input.empty(), ErrorKind::configuration,
         "give an input file: megatron_train INPUT.toml, or make one with --new FILE.toml; see --help");
  verify(arguments.plans() || values.count("ranks") == 0, ErrorKind::configuration,
         "--ranks belongs to --dry-run, --parameters and --fit; a real run has the ranks its launcher starts");
  verify(!arguments.verify || !arguments.prints(), ErrorKind::configuration,
         "--verify runs the layout; --dry-run, --parameters, --print-config and --print-samples run nothing: give one "
         "or the other");
  verify(!arguments.fresh || !(arguments.verify || arguments.prints()), ErrorKind::configuration,
         "--fresh starts a training run; --verify, --dry-run, --parameters, --print-config and --print-samples train "
         "nothing: give one or the other");
  verify(values.count("ranks") == 0 || arguments.ranks > 0, ErrorKind::configuration, "--ranks {}: at least 1",
         arguments.ranks);
  return arguments;
}

// One attempt reports what is wrong with the file, its batches on this many ranks, and its data.
Config read_input(const Arguments& arguments, bool enabled, std::vector<std::string>& notes) {
  std::error_code missing;  // told where it is read
  const auto type = std::filesystem::status(arguments.input, missing).type();
  const bool once = type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character;
  verify(launcher_ranks() == 1 || !once, ErrorKind::configuration,
         "{}: error: this is a pipe or a device, which one rank alone can read; give {} ranks a file", arguments.input,
         launcher_ranks());
  return parse_config(arguments.input, arguments.overrides, &notes, [&](const Config& config) {
    std::vector<Violation> problems;
    const int ranks = arguments.answers_only() ? arguments.ranks : launcher_ranks();
    if (ranks > 0) problems = check_with_ranks(config, ranks);
    if (!enabled || arguments.plans() || arguments.print_config) return problems;
    if (config.data.train.empty() || config.model.sequence_length <= 0 || config.train.global_batch_size <= 0) {
      return problems;  // it cannot be opened
    }
    try {
      const Datasets datasets(arguments.fresh ? without_own_run(config) : config);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data && error.kind() != ErrorKind::filesystem) return problems;
      problems.push_back({{"data.train", "data.validation", "data.test"}, error.what(), ""});
    }
    return problems;
  });
}

// For the banner: which job this is, and how often it has been back in the queue.
std::string slurm_job() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return "";
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return fmt::format("Slurm {}, restarts {}", job, restarts == nullptr ? "0" : restarts);
}

// On CPUs, whose speed is measured here.
std::string propose_fit(const Config& config, int ranks, const std::string& limit) {
  const double bytes = parse_bytes(limit);
  if (ranks == 0) ranks = count_ranks(config.parallel);
  const std::optional<DataFacts> facts = facts_of_data(config);
  Config resolved = config;
  resolved.run.device = "cpu";
  resolve(resolved, ranks, facts ? &*facts : nullptr);
  const Hardware here = hardware_here(resolved, measure_speed(resolved), ranks);
  const std::optional<DiskSpeed> disk = measure_disk(offload_folder(resolved));
  return describe_fit(fit_memory(config, here, {.ranks = ranks, .data = facts ? &*facts : nullptr}, bytes,
                                 disk ? disk->bytes_per_second : 0));
}

// FIRST:COUNT, or COUNT from the first on. With their text where the shards' tokenizer is there.
void print_training_samples(const Config& config, const std::string& range) {
  const std::size_t colon = range.find(':');
  const auto number = [&](const std::string& text) {
    verify(!text.empty() && text.size() < 19 && std::all_of(text.begin(), text.end(), ::isdigit),
           ErrorKind::configuration, "--print-samples {}: give FIRST:COUNT or COUNT, whole numbers", range);
    return std::stoull(text);
  };
  const std::uint64_t first = colon == std::string::npos ? 0 : number(range.substr(0, colon));
  const std::uint64_t count = number(colon == std::string::npos ? range : range.substr(colon + 1));
  const Datasets datasets(config);
  const std::shared_ptr<const Tokenizer> tokenizer = datasets.tokenizer();
  DecodeTokens decode;
  if (tokenizer != nullptr) decode = [&](std::span<const std::int32_t> tokens) { return tokenizer->decode(tokens); };
  const auto consumed = static_cast<std::uint64_t>(config.checkpoint.consumed_samples);
  print_samples(*datasets.train().samples, consumed + first, count, decode, std::cout);
}

RunEnvironment environment(const MpiSession& session, double started) {
  return {.host = session.host(),
          .version = program_version(),
          .local_rank = session.local_rank(),
          .started = started,
          .job = slurm_job(),
          .job_ends = parse_job_end(std::getenv("SLURM_JOB_END_TIME"))};
}

std::unique_ptr<HangWatch> watch_for_hangs(MpiSession& session, const RunConfig& run) {
  if (run.hang_minutes == 0) return nullptr;
  return std::make_unique<HangWatch>(
      session.activity(), session.neighbours(), session.rank(),
      HangWatch::Settings{
          .limit_seconds = 60 * run.hang_minutes,
          .host = session.host(),
          .hosts = session.hosts(),
          .folder = run.directory,
          .job = session.job(),
          .print = [](const std::string& text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); },
          .abort = [&session] { session.abort(static_cast<int>(ErrorKind::communication)); }});
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  const double started = Timers::steady_seconds();
  // 1. The command line and the input file: mistakes in them are found before anything is started.
  Arguments arguments;
  Config config;
  std::vector<std::string> notes;
  bool done = false;
  const bool enabled = launcher_rank() == 0;
  const int code = run_alone([&] {
    arguments = parse_arguments(argc, argv);
    const bool needs_input = !arguments.help && !arguments.version && !arguments.views.any() && !arguments.makes_file();
    if (needs_input) config = read_input(arguments, enabled, notes);
    done = arguments.help || arguments.version || arguments.answers_only();
    if (!enabled) return 0;
    if (done || arguments.verify) {  // a run has them in its log
      for (const std::string& note : notes) std::cerr << "warning: " << note << "\n";
    }
    if (!done) return 0;
    if (arguments.help) {
      Arguments unused;
      std::cout << "Usage: megatron_train INPUT.toml [options]\n\n" << list_options(options(unused));
    } else if (arguments.version) {
      std::cout << version_report("megatron_train");
    } else if (arguments.makes_file()) {
      return new_input(arguments.new_file);
    } else if (arguments.views.any()) {
      return show_runs(arguments.views);
    }
    if (arguments.print_config) std::cout << print_config(config);
    if (arguments.dry_run) std::cout << dry_run(config, arguments.ranks);
    if (!arguments.fit.empty()) std::cout << propose_fit(config, arguments.ranks, arguments.fit);
    if (arguments.parameters) std::cout << list_parameters(config, arguments.ranks);
    if (!arguments.samples.empty()) print_training_samples(config, arguments.samples);
    return 0;
  });
  if (code != 0 || done) return code;
  // 2. The run, or its layout's proof, which a signal just ends.
  if (arguments.verify) {
    return run_with_mpi(argc, argv, [&](MpiSession& session) {
      const std::unique_ptr<HangWatch> hang_watch = watch_for_hangs(session, config.run);
      Log log(session.rank() == 0);
      return verify_layout(config, session.world(), environment(session, started), log);
    });
  }
  StopSignals signals;  // one that comes while MPI is starting already counts
  return run_with_mpi(
      argc, argv,
      [&](MpiSession& session) {
        const std::unique_ptr<HangWatch> hang_watch = watch_for_hangs(session, config.run);
        RunEnvironment here = environment(session, started);
        here.fresh = arguments.fresh;
        here.hang_watch = hang_watch.get();
        here.notes = notes;
        return run_training(config, session.world(), here, signals);
      },
      config.run.directory);
}
