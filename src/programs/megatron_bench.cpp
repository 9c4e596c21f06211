// megatron_bench: model FLOP/s as a share of this machine's own sgemm rate at the model's shapes.
//
//   ./megatron_bench                              lists the cases
//   ./megatron_bench --case NAME                  one of them
//   ./megatron_bench --all                        all cases of one rank: minutes
//   scripts/launch.sh 2 ./megatron_bench --all    all cases of two ranks
#include <algorithm>
#include <iostream>

#include "bench/benchmark.h"
#include "bench/benchmark_generation.h"
#include "bench/benchmark_memory.h"
#include "bench/benchmark_overlap.h"
#include "bench/benchmark_pipeline.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "programs/program.h"
#include "system/log.h"
#include "text/text.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

constexpr const char *kPipelineCase = "pipeline_bubbles", *kMemoryCase = "memory", *kOverlapCase = "overlap",
                     *kGenerationCase = "generate";

struct Arguments {
  std::string name;
  BenchmarkSettings settings;
  bool all = false, json = false, quick = false, version = false, help = false;

  /// Nothing was said of what to measure.
  bool only_lists() const { return name.empty() && !all; }
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options");
  auto add = described.add_options();
  add("case", po::value(&arguments.name)->value_name("NAME"), "this case only");
  add("all", po::bool_switch(&arguments.all), "all cases of as many ranks as there are: several minutes");
  add("steps", po::value(&arguments.settings.steps)->value_name("N"), "steps to measure (default: by case)");
  add("quick", po::bool_switch(&arguments.quick), "three steps of each case");
  add("threads", po::value(&arguments.settings.threads)->value_name("N"), "threads per rank (default: 1)");
  add("device", po::value(&arguments.settings.device)->default_value("auto")->value_name("DEVICE"),
      "\"cpu\", \"cuda\", or \"auto\": a CUDA device where every rank sees one; of cases of training steps");
  add("training-only", po::bool_switch(&arguments.settings.training_only),
      "only the training: no matrix products, nor their memory");
  add("json", po::bool_switch(&arguments.json), "one JSON object a case instead of text");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

/// The named case, or all of this many ranks but those that are for GPUs.
std::vector<BenchmarkCase> chosen_cases(const std::string& name, int ranks) {
  std::vector<BenchmarkCase> cases = benchmark_cases();
  if (name.empty()) {
    std::erase_if(cases, [&](const BenchmarkCase& benchmark) { return benchmark.ranks != ranks || benchmark.gpu; });
    verify(!cases.empty(), ErrorKind::configuration, "there is no case of {}; --help lists them",
           counted(ranks, "rank"));
    return cases;
  }
  std::erase_if(cases, [&](const BenchmarkCase& benchmark) { return benchmark.name != name; });
  verify(!cases.empty(), ErrorKind::configuration, "--case {}: there is no such case; --help lists them", name);
  verify(cases[0].ranks == ranks, ErrorKind::configuration, "--case {} is of {}, not {}: scripts/launch.sh {} ...",
         name, counted(cases[0].ranks, "rank"), ranks, cases[0].ranks);
  return cases;
}

void print_cases() {
  std::cout << "Cases\n";
  for (const BenchmarkCase& benchmark : benchmark_cases()) {
    std::cout << fmt::format("  {:<20}{} rank{}{}: {}\n", benchmark.name, benchmark.ranks,
                             benchmark.ranks == 1 ? "" : "s", benchmark.gpu ? ", on a GPU" : "", benchmark.title);
  }
  std::cout << fmt::format("  {:<20}1 rank: the pipeline schedules' bubbles, measured against formulas\n",
                           kPipelineCase);
  std::cout << fmt::format("  {:<20}1 rank: tokens per second of GPT-2 124M, against memory bandwidth and training\n",
                           kGenerationCase);
  std::cout << fmt::format("  {:<20}2 ranks: steps with communication under computation and without\n", kOverlapCase);
  std::cout << fmt::format("  {:<20}no ranks: memory of a rank with and without each option, planned\n", kMemoryCase);
}

void print_help() {
  Arguments unused;
  std::cout << "usage: megatron_bench [options]\n\n" << options(unused) << '\n';
  print_cases();
}

void run_memory_case(bool json) {
  const std::vector<MemoryCase> cases = memory_cases();
  if (!json) std::cout << '\n' << describe(cases) << std::flush;
  for (const MemoryCase& benchmark : cases) {
    if (json) std::cout << to_json(benchmark) << std::flush;
  }
}

/// Bubbles of the pipeline's schedules: needs one rank, and starts threads for the others.
void run_pipeline_case(const Arguments& arguments) {
  constexpr double seconds = 10e-3;
  const int rounds = arguments.settings.steps > 0 ? arguments.settings.steps : 5;
  std::vector<PipelineBubble> bubbles;
  for (const PipelineCase& benchmark : pipeline_cases()) {
    bubbles.push_back(measure_bubble(benchmark, seconds, rounds));
    if (arguments.json) std::cout << to_json(bubbles.back()) << std::flush;
  }
  if (!arguments.json) std::cout << '\n' << describe(bubbles) << std::flush;
}

/// Decoding on the first core, and on a pipeline of threads.
void run_generation_case(const Arguments& arguments, MpiSession& session) {
  constexpr double seconds = 5e-3;
  const int rounds = arguments.settings.steps > 0 ? arguments.settings.steps : 7;
  const GenerationSpeed speed = measure_generation(generation_case(), rounds, session.world());
  const DecodingPipeline pipeline = measure_decoding_pipeline(seconds, std::min(rounds, 5));
  std::cout << (arguments.json ? to_json(speed, pipeline) : '\n' + describe(speed, pipeline)) << std::flush;
}

/// Steps with and without overlap, of two ranks.
void run_overlap_case(const Arguments& arguments, MpiSession& session) {
  OverlapSettings settings{.threads = arguments.settings.threads};
  if (arguments.settings.steps > 0) settings.rounds = arguments.settings.steps;
  const std::vector<OverlapTimes> times = measure_overlap(overlap_cases(), settings, session.world());
  if (session.rank() != 0) return;
  if (!arguments.json) std::cout << '\n' << describe(times) << std::flush;
  for (const OverlapTimes& each : times) {
    if (arguments.json) std::cout << to_json(each) << std::flush;
  }
}

int run(const Arguments& arguments, MpiSession& session) {
  const bool pipeline = arguments.name == kPipelineCase;
  verify(!pipeline || session.size() == 1, ErrorKind::configuration, "--case {} is of 1 rank, not {}: no launcher",
         kPipelineCase, session.size());
  const bool generation = arguments.name == kGenerationCase;
  verify(!generation || session.size() == 1, ErrorKind::configuration, "--case {} is of 1 rank, not {}: no launcher",
         kGenerationCase, session.size());
  verify(!generation || arguments.settings.threads == 1, ErrorKind::configuration, "--case {} is of 1 thread, not {}",
         kGenerationCase, arguments.settings.threads);
  const bool memory = arguments.name == kMemoryCase, overlap = arguments.name == kOverlapCase;
  verify(!overlap || session.size() == 2, ErrorKind::configuration,
         "--case {} is of 2 ranks, not {}: scripts/launch.sh 2 ...", kOverlapCase, session.size());
  const bool special = pipeline || memory || overlap || generation;
  const auto cases = special ? std::vector<BenchmarkCase>() : chosen_cases(arguments.name, session.size());
  const bool speaks = session.rank() == 0;
  if (speaks && !arguments.json && !memory) {
    std::cout << fmt::format("{} thread{} a rank, fp32 unless said, no dropout; medians; FLOPs are counted causally\n",
                             arguments.settings.threads, arguments.settings.threads == 1 ? "" : "s");
  }
  for (const BenchmarkCase& benchmark : cases) {
    BenchmarkSettings settings = arguments.settings;
    settings.local_rank = session.local_rank();
    if (benchmark.gpu && settings.device == "auto") settings.device = "cuda";
    settings.training_only = settings.training_only || benchmark.gpu;  // the products are the CPU's measure, in fp32
    const BenchmarkResult result = run_benchmark(benchmark, settings, session.world());
    if (!speaks) continue;
    std::cout << (arguments.json ? to_json(benchmark, result) : '\n' + describe(benchmark, result)) << std::flush;
  }
  const bool all_of_one = arguments.name.empty() && session.size() == 1;
  if (pipeline || all_of_one) run_pipeline_case(arguments);
  if (generation || (all_of_one && arguments.settings.threads == 1)) run_generation_case(arguments, session);
  if (overlap || (arguments.name.empty() && session.size() == 2)) run_overlap_case(arguments, session);
  if (speaks && (memory || all_of_one)) run_memory_case(arguments.json);
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
    verify(threads >= 1 && threads <= 1024, ErrorKind::configuration, "--threads {}: 1 to 1024", threads);
    if (arguments.quick && steps == 0) steps = 3;
    verify(arguments.name.empty() || !arguments.all, ErrorKind::configuration, "give --case or --all, not both");
    const bool lists = arguments.only_lists() && !arguments.help && !arguments.version;
    done = arguments.help || arguments.version || lists;
    if (lists && launcher_rank() == 0) {
      print_cases();
      std::cout << "\nNothing was measured: choose one with --case NAME, or --all (several minutes; --quick: one or "
                   "two).\n";
    }
    if (arguments.help) print_help();
    if (arguments.version) std::cout << version_report("megatron_bench");
    return 0;
  });
  if (code != 0 || done) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) { return run(arguments, session); });
}
