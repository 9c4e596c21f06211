// megatron_bench: model FLOP/s as a share of this machine's own sgemm rate at the model's shapes.
//
//   ./megatron_bench                              lists the cases
//   ./megatron_bench --case NAME                  one of them
//   ./megatron_bench --all                        all cases of one rank: minutes
//   scripts/launch.sh 2 ./megatron_bench --all    all cases of two ranks
//   scripts/launch.sh 2 ./megatron_bench --hardware here.toml
//                                                 measures a hardware file for megatron_plan
#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/system/durable_file.h"
#include "base/system/log.h"
#include "base/text/text.h"
#include "distributed/comm/agreement.h"
#include "planning/bench/benchmark.h"
#include "planning/bench/comparisons.h"
#include "planning/bench/measure_hardware.h"
#include "programs/program.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::string name, precision;
  OutputFile hardware{"--hardware", ""};
  BenchmarkSettings settings;
  bool all = false, json = false, quick = false, version = false, help = false;

  /// Nothing was said of what to measure.
  bool only_lists() const { return name.empty() && hardware.path.empty() && !all; }
  bool other_precision() const { return precision != Config().precision.compute; }
  int rounds(int usual) const { return settings.steps > 0 ? settings.steps : usual; }
  void print(const Report& report) const { std::cout << (json ? report.json() : '\n' + report.text) << std::flush; }
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options", kHelpColumns, kDescriptionColumns);
  auto add = described.add_options();
  add("case", po::value(&arguments.name)->value_name("NAME"), "this case only");
  add("all", po::bool_switch(&arguments.all), "all cases of as many ranks as there are: several minutes");
  add("hardware", po::value(&arguments.hardware.path)->value_name("FILE.toml"),
      "measures this machine and writes the hardware file that megatron_plan --hardware reads: as many ranks and "
      "threads as runs will have on a node; about a minute");
  add("force", po::bool_switch(&arguments.hardware.force), "replaces the file of --hardware, if there is one");
  add("steps", po::value(&arguments.settings.steps)->value_name("N"), "steps to measure (default: by case)");
  add("quick", po::bool_switch(&arguments.quick),
      "three steps of each case; with --hardware a few small sizes, for a first try");
  add("threads", po::value(&arguments.settings.threads)->value_name("N"), "threads per rank (default: 1)");
  add("device", po::value(&arguments.settings.device)->default_value("auto")->value_name("auto|cpu|cuda"),
      "auto: a CUDA device where every rank sees one; of cases of training steps");
  add("precision", po::value(&arguments.precision)->default_value("fp32")->value_name("fp32|bf16|fp16"),
      "as precision.compute: of cases of training steps on a CPU; --all leaves out the other cases");
  add("training-only", po::bool_switch(&arguments.settings.training_only),
      "only the training: no matrix products, nor their memory");
  add("json", po::bool_switch(&arguments.json), "one JSON object a case instead of text");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

/// The named case, or all of this many ranks but those that are for GPUs.
std::vector<Case> chosen_cases(const std::string& name, const std::string& precision, int ranks) {
  std::vector<Case> cases = benchmark_cases(precision);
  if (name.empty()) {
    std::erase_if(cases, [&](const Case& benchmark) { return benchmark.ranks() != ranks || benchmark.gpu; });
    verify(!cases.empty(), ErrorKind::configuration, "there is no case of {}; --help lists them",
           counted(ranks, "rank"));
    return cases;
  }
  std::erase_if(cases, [&](const Case& benchmark) { return benchmark.name != name; });
  verify(!cases.empty(), ErrorKind::configuration, "--case {}: there is no such case; --help lists them", name);
  verify(cases[0].ranks() == ranks, ErrorKind::configuration, "--case {} is of {}, not {}: scripts/launch.sh {} ...",
         name, counted(cases[0].ranks(), "rank"), ranks, cases[0].ranks());
  return cases;
}

Report run_memory_case(const Arguments&, MpiSession& session) {
  return session.rank() == 0 ? plan_memory_cases() : Report();
}

/// Bubbles of the pipeline's schedules: needs one rank, and starts threads for the others.
Report run_pipeline_case(const Arguments& arguments, MpiSession&) {
  constexpr double seconds = 10e-3;
  std::vector<PipelineBubble> bubbles;
  for (const PipelineCase& benchmark : pipeline_cases()) {
    bubbles.push_back(measure_bubble(benchmark, seconds, arguments.rounds(5)));
  }
  return report(bubbles);
}

/// Decoding on the first core, and on a pipeline of threads.
Report run_generation_case(const Arguments& arguments, MpiSession& session) {
  constexpr double seconds = 5e-3;
  const int rounds = arguments.rounds(7);
  return measure_generation({}, measure_decoding_pipeline(seconds, std::min(rounds, 5)), rounds, session.world());
}

/// Steps with and without overlap, of two ranks.
Report run_overlap_case(const Arguments& arguments, MpiSession& session) {
  const OverlapSettings settings{.rounds = arguments.rounds(5), .threads = arguments.settings.threads};
  return measure_overlap(overlap_cases(), settings, session.world());
}

/// Steps with each optimizer.share, of two ranks.
Report run_share_case(const Arguments& arguments, MpiSession& session) {
  return measure_layouts(share_comparison(), arguments.rounds(7), session.world());
}

/// A sequence on two ranks, by each exchange, next to two sequences.
Report run_context_case(const Arguments& arguments, MpiSession& session) {
  return measure_layouts(context_comparison(), arguments.rounds(5), session.world());
}

/// A mixture of experts next to a dense model, on one rank; whole experts next to divided ones, on two.
Report run_experts_case(const Arguments& arguments, MpiSession& session) {
  return measure_experts(experts_cases(session.size()), arguments.rounds(7), session.world());
}

/// Sizes of activations by width, with muP and without.
Report run_coordinates_case(const Arguments& arguments, MpiSession& session) {
  CoordinatesCase benchmark;
  benchmark.steps = arguments.rounds(benchmark.steps);
  return measure_coordinates(benchmark, session.world());
}

/// A case that is not one model's training steps.
struct SpecialCase {
  const char *name, *title;
  int fewest_ranks, most_ranks;
  bool one_thread;
  Report (*run)(const Arguments&, MpiSession&);
};

constexpr int kAnyRanks = 1 << 30;
constexpr SpecialCase kSpecialCases[] = {
    {"pipeline_bubbles", "1 rank: the pipeline schedules' bubbles, measured against formulas", 1, 1, false,
     run_pipeline_case},
    {"generate", "1 rank: tokens per second of GPT-2 124M, against memory bandwidth and training", 1, 1, true,
     run_generation_case},
    {"overlap", "2 ranks: steps with communication under computation and without", 2, 2, false, run_overlap_case},
    {"share", "2 ranks: what copies divide among them: state, nothing, gradients, weights", 2, 2, true, run_share_case},
    {"context", "2 ranks: a sequence divided between them, by each exchange, against a sequence each", 2, 2, true,
     run_context_case},
    {"moe", "1 rank: mixtures of experts against a dense model; 2 ranks: experts divided between them and whole", 1, 2,
     true, run_experts_case},
    {"coordinates", "1 rank: sizes of activations after a few steps, by width, with muP and without", 1, 1, true,
     run_coordinates_case},
    {"memory", "no ranks: memory of a rank with and without each option, planned", 1, kAnyRanks, false,
     run_memory_case},
};

/// The case of this name for these ranks and threads; null: it is none of the special ones.
const SpecialCase* special_case(const std::string& name, int ranks, int threads) {
  for (const SpecialCase& each : kSpecialCases) {
    if (each.name != name) continue;
    verify(ranks >= each.fewest_ranks, ErrorKind::configuration,
           "--case {} is of {} ranks, not {}: scripts/launch.sh {} ...", name, each.fewest_ranks, ranks,
           each.fewest_ranks);
    verify(ranks <= each.most_ranks, ErrorKind::configuration, "--case {} is of {}, not {}", name,
           each.most_ranks == 1 ? "1 rank" : fmt::format("at most {} ranks", each.most_ranks), ranks);
    verify(!each.one_thread || threads == 1, ErrorKind::configuration, "--case {} is of 1 thread, not {}", name,
           threads);
    return &each;
  }
  return nullptr;
}

/// A hardware file of this machine. Whether the file may be written is known before anything is measured.
int write_hardware(const Arguments& arguments, MpiSession& session) {
  const bool speaks = session.rank() == 0;
  agree(session.world(), [&] {
    if (speaks) check_output(arguments.hardware);
  });
  const MeasuredHardware measured = measure_hardware({.threads = arguments.settings.threads,
                                                      .device = arguments.settings.device,
                                                      .local_rank = session.local_rank(),
                                                      .quick = arguments.quick},
                                                     session.world());
  if (!speaks) return 0;
  const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::string text = print_hardware(
      measured.hardware,
      fmt::format("Measured by megatron_bench --hardware on {:%Y-%m-%d}{}; ranks had a core for {:.0f} % of the time.",
                  today, arguments.quick ? " with --quick, of few and small sizes" : "", 100 * measured.undisturbed));
  parse_hardware(text, arguments.hardware.path);
  write_output(arguments.hardware, text);
  std::cout << describe(measured) << fmt::format("written   {}\n", arguments.hardware.path);
  return 0;
}

void print_cases() {
  std::cout << "Cases\n";
  for (const Case& benchmark : benchmark_cases()) {
    std::cout << fmt::format("  {:<20}{}{}: {}\n", benchmark.name, counted(benchmark.ranks(), "rank"),
                             benchmark.gpu ? ", on a GPU" : "", benchmark.title);
  }
  for (const SpecialCase& each : kSpecialCases) std::cout << fmt::format("  {:<20}{}\n", each.name, each.title);
}

void print_help() {
  Arguments unused;
  std::cout << "Usage: megatron_bench [options]\n\n" << list_options(options(unused)) << '\n';
  print_cases();
}

int run(const Arguments& arguments, MpiSession& session) {
  if (!arguments.hardware.path.empty()) return write_hardware(arguments, session);
  const int threads = arguments.settings.threads;
  const SpecialCase* special = special_case(arguments.name, session.size(), threads);
  const auto cases =
      special != nullptr ? std::vector<Case>() : chosen_cases(arguments.name, arguments.precision, session.size());
  const bool fixed_precision = special != nullptr || (!arguments.name.empty() && cases[0].gpu);
  verify(!fixed_precision || !arguments.other_precision(), ErrorKind::configuration,
         "--precision {}: --case {} has its own precision", arguments.precision, arguments.name);
  const bool speaks = session.rank() == 0;
  if (speaks && !arguments.json && (special == nullptr || special->run != run_memory_case)) {
    std::cout << counted(threads, "thread")
              << " a rank, fp32 unless said, no dropout; medians; FLOPs are counted causally\n";
  }
  for (const Case& benchmark : cases) {
    BenchmarkSettings settings = arguments.settings;
    settings.local_rank = session.local_rank();
    if (benchmark.gpu && settings.device == "auto") settings.device = "cuda";
    settings.training_only = settings.training_only || benchmark.gpu;  // the products are the CPU's measure, in fp32
    const BenchmarkResult result = run_benchmark(benchmark, settings, session.world());
    if (speaks) arguments.print(report(benchmark, result));
  }
  const auto run_special = [&](const SpecialCase& each) {
    const Report found = each.run(arguments, session);
    if (speaks) arguments.print(found);
  };
  if (special != nullptr) run_special(*special);
  if (!arguments.name.empty() || arguments.other_precision()) return 0;
  for (const SpecialCase& each : kSpecialCases) {
    const bool fits = session.size() >= each.fewest_ranks && session.size() <= each.most_ranks;
    const bool planned = each.most_ranks == kAnyRanks;  // without ranks: with the cases of one
    if (fits && (!planned || session.size() == 1) && (!each.one_thread || threads == 1)) run_special(each);
  }
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  Arguments arguments;
  bool done = false;
  const int code = run_alone([&] {
    const po::positional_options_description none;
    const po::variables_map values = parse_command_line(argc, argv, options(arguments), none);
    int& steps = arguments.settings.steps;
    verify(values.count("steps") == 0 || steps > 0, ErrorKind::configuration, "--steps {}: at least 1", steps);
    const int threads = arguments.settings.threads;
    const std::string& device = arguments.settings.device;
    verify(device == "auto" || device == "cpu" || device == "cuda", ErrorKind::configuration,
           "--device {}: auto, cpu or cuda", device);
    const std::string& precision = arguments.precision;
    verify(precision == "fp32" || precision == "bf16" || precision == "fp16", ErrorKind::configuration,
           "--precision {}: fp32, bf16 or fp16", precision);
    verify(threads >= 1 && threads <= 1024, ErrorKind::configuration, "--threads {}: 1 to 1024", threads);
    if (arguments.quick && steps == 0) steps = 3;
    verify(arguments.name.empty() || !arguments.all, ErrorKind::configuration, "give --case or --all, not both");
    verify(arguments.hardware.path.empty() || (arguments.name.empty() && !arguments.all), ErrorKind::configuration,
           "--hardware measures the machine and --case and --all measure cases; give one of them");
    verify(arguments.hardware.path.empty() || !arguments.other_precision(), ErrorKind::configuration,
           "--precision {}: --hardware measures both fp32 and 16 bits", precision);
    verify(!arguments.hardware.force || !arguments.hardware.path.empty(), ErrorKind::configuration,
           "--force is for the file of --hardware");
    const bool lists = arguments.only_lists() && !arguments.help && !arguments.version;
    done = arguments.help || arguments.version || lists;
    if (lists && launcher_rank() == 0) {
      print_cases();
      std::cout << "\nNothing was measured: choose one with --case NAME, or --all (several minutes; --quick: one or "
                   "two), or the machine with --hardware FILE.toml.\n";
    }
    if (arguments.help) print_help();
    if (arguments.version) std::cout << version_report("megatron_bench");
    return 0;
  });
  if (code != 0 || done) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) { return run(arguments, session); });
}
