// megatron_bench: model FLOP/s of one rank as a share of this machine's own sgemm rate at the model's shapes.
//
//   ./megatron_bench                    all cases
//   ./megatron_bench --case NAME        one of them (--help lists them)
#include <algorithm>
#include <iostream>

#include "base/log.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "programs/program.h"
#include "train/benchmark.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::string name;
  int steps = 0;
  bool quick = false, version = false, help = false;
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options");
  auto add = described.add_options();
  add("case", po::value(&arguments.name)->value_name("NAME"), "this case only");
  add("steps", po::value(&arguments.steps)->value_name("N"), "steps to measure (default: by case)");
  add("quick", po::bool_switch(&arguments.quick), "three steps of each case");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

std::vector<BenchmarkCase> chosen_cases(const Arguments& arguments) {
  std::vector<BenchmarkCase> cases = benchmark_cases();
  if (!arguments.name.empty()) {
    std::erase_if(cases, [&](const BenchmarkCase& benchmark) { return benchmark.name != arguments.name; });
    verify(!cases.empty(), ErrorKind::configuration, "--case {}: there is no such case; --help lists them",
           arguments.name);
  }
  for (BenchmarkCase& benchmark : cases) {
    if (arguments.quick) benchmark.steps = 3;
    if (arguments.steps > 0) benchmark.steps = arguments.steps;
  }
  return cases;
}

void print_help() {
  Arguments unused;
  std::cout << "usage: megatron_bench [options]\n\n" << options(unused) << "\nCases\n";
  for (const BenchmarkCase& benchmark : benchmark_cases()) {
    std::cout << fmt::format("  {:<18}{}\n", benchmark.name, benchmark.title);
  }
}

int run(const std::vector<BenchmarkCase>& cases, MpiSession& session) {
  verify(session.size() == 1, ErrorKind::configuration,
         "megatron_bench measures one rank: start it without a launcher, not on {} ranks", session.size());
  std::cout << make_cpu_backend().device->description() << "; one thread, fp32, no dropout; medians; FLOPs are counted "
            << "causally\n";
  for (const BenchmarkCase& benchmark : cases) {
    const BenchmarkResult result = run_benchmark(benchmark, benchmark.steps, session.world());
    std::cout << '\n' << describe(benchmark, result) << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  keep_standard_streams_open();
  std::vector<BenchmarkCase> cases;
  bool done = false;
  const int code = run_alone([&] {
    Arguments arguments;
    const po::positional_options_description none;
    const po::variables_map values = parse_command_line(argc, argv, options(arguments), none);
    verify(values.count("steps") == 0 || arguments.steps > 0, ErrorKind::configuration, "--steps {}: at least 1",
           arguments.steps);
    done = arguments.help || arguments.version;
    if (arguments.help) print_help();
    if (arguments.version) std::cout << version_report("megatron_bench");
    if (!done) cases = chosen_cases(arguments);
    return 0;
  });
  if (code != 0 || done) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) { return run(cases, session); });
}
