#include "planning/bench/measure_hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/core/stopwatch.h"
#include "base/core/timers.h"
#include "base/system/host_name.h"
#include "base/text/text.h"
#include "distributed/comm/gather.h"
#include "distributed/process/cores.h"
#include "planning/bench/measured_machine.h"

namespace megatron {

namespace {

constexpr const char* kSoftware = "measured";
constexpr double kUndisturbed = 0.9;

void check_one_host(Communicator& world, const std::string& host) {
  const std::string first = world.broadcast_text(host, 0);
  verify(!world.any_rank(host != first), ErrorKind::configuration,
         "a hardware file is measured on one node, and these ranks are on several; start them on one: its network is "
         "for you to fill in");
}

// The cores that any of the ranks may use.
int cores_of(Communicator& world, const std::string& host) {
  std::set<int> all;
  for (const std::set<int>& cores : gather(world, cores_of_process(host).cores)) all.insert(cores.begin(), cores.end());
  return static_cast<int>(world.all_reduce_value(static_cast<double>(all.size()), kReportMaximum));
}

void check_cores(Communicator& world, const std::string& host, int threads) {
  const int cores = cores_of(world, host), needed = world.size() * threads;
  verify(cores == 0 || needed <= cores, ErrorKind::configuration,
         "{} of {} need {}, and there are {}: what threads measure that take turns is no rate of a core; start fewer "
         "ranks or threads",
         counted(world.size(), "rank"), counted(threads, "thread"), counted(needed, "core"), cores);
}

MeasuredMachine start(const HardwareSettings& settings, Communicator& world) {
  RunConfig run;
  run.device = settings.device;
  run.threads = settings.threads;
  std::vector<std::string> warnings;
  run = choose_device(run, world, warnings);
  const std::string host = host_name();
  check_one_host(world, host);
  if (on_host_memory(run)) check_cores(world, host, settings.threads);
  return {settings, world, start_compute(run, DType::f32, world, host, settings.local_rank)};
}

// Sets rates to those of the mean of both measurements' seconds.
void average_products(MeasuredRates& rates, const MeasuredRates& again) {
  for (std::size_t kind = 0; kind < kProductKinds; ++kind) {
    const std::map<RateTable<3>::Sizes, double> first = rates.products[kind].rows();
    for (const auto& [sizes, rate] : first) {
      rates.products[kind].set(sizes, 2 / (1 / rate + 1 / again.products[kind].rows().at(sizes)));
    }
  }
}

/// For groups that were not measured: of the largest, by its gathers.
LinkLevel node_level(const MeasuredLinks& links) {
  const auto gathers = links.collectives.find("all_gather");
  if (gathers == links.collectives.end()) return {};
  const auto& [ranks, seconds] = *gathers->second.rbegin();
  const auto& [bytes, most] = *seconds.points().rbegin();
  const double least = seconds.points().begin()->second;
  return {.bandwidth = bytes * (ranks - 1) / ranks / most, .latency = least / std::ceil(std::log2(ranks))};
}

// The cores that compute also move what is sent: neither runs under the other.
Software software_of(const Hardware& hardware, bool cores_move, double between) {
  Software software;
  software.attention_efficiency =
      std::min(1.0, hardware.rates_32bit.of(AttentionKind::forward).best() / hardware.flops_32bit);
  software.launch = between;
  software.tensor_blocking = software.blocking_transfers = cores_move;
  software.copies_overlap = !cores_move;
  return software;
}

}  // namespace

double MeasuredMachine::seconds(int rounds, int calls, const std::function<void(int)>& call) const {
  call(0);
  device().synchronize();
  world.barrier();
  std::vector<double> found;
  for (int round = 0; round < rounds; ++round) {
    const double begin = Timers::steady_seconds();
    for (int i = 0; i < calls; ++i) call(1 + round * calls + i);
    device().synchronize();
    found.push_back((Timers::steady_seconds() - begin) / calls);
  }
  return median(found);
}

void MeasuredMachine::average(std::vector<double*> numbers) const {
  std::vector<double> values;
  for (const double* number : numbers) values.push_back(*number);
  world.all_reduce_values(values, kReport);
  for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = values[i] / world.size();
}

MeasuredHardware measure_hardware(const HardwareSettings& settings, Communicator& world) {
  MeasuredMachine machine = start(settings, world);
  const Seconds begin = Seconds::now();
  const bool host_memory = machine.device().is_host_memory();
  Hardware hardware;
  hardware.name = fmt::format("{}, {} of {}", machine.device().description(), counted(world.size(), "rank"),
                              counted(settings.threads, "thread"));
  std::replace(hardware.name.begin(), hardware.name.end(), '"', '\'');
  std::replace(hardware.name.begin(), hardware.name.end(), '\\', '/');
  hardware.device = host_memory ? "cpu" : "cuda";
  hardware.ranks_per_node = world.size();
  hardware.threads_per_rank = settings.threads;
  const auto free_bytes = static_cast<double>(machine.device().free_bytes().value_or(std::size_t{1} << 40));
  const double least_free = -world.all_reduce_value(-free_bytes, kReportMaximum);  // the same on every rank
  hardware.memory_bytes = host_memory ? least_free / world.size() : least_free;
  // A core's clock changes within minutes: products, of which steps are made, are measured first and last.
  double between = 0;
  const std::pair<DType, MeasuredRates*> types[] = {{DType::f32, &hardware.rates_32bit},
                                                    {DType::bf16, &hardware.rates_16bit}};
  for (const auto& [type, rates] : types) measure_products(machine, type, *rates);
  for (const auto& [type, rates] : types) {
    measure_attention(machine, type, *rates);
    const double gap = measure_operations(machine, type, *rates);
    if (type == DType::f32) between = gap;
  }
  hardware.memory_bandwidth = measure_memory(machine);
  measure_links(machine, hardware.links);
  for (const auto& [type, rates] : types) {
    MeasuredRates again;
    measure_products(machine, type, again);
    average_products(*rates, again);
  }
  hardware.flops_32bit = hardware.rates_32bit.best_product();
  hardware.flops_16bit = hardware.rates_16bit.best_product();
  hardware.node = node_level(hardware.links);
  hardware.used = software_of(hardware, host_memory, between);
  hardware.software_name = kSoftware;
  hardware.software = {{kSoftware, hardware.used}};
  const Seconds taken = Seconds::now() - begin;
  const double least = -world.all_reduce_value(-taken.cpu / taken.wall, kReportMaximum);
  return {std::move(hardware), host_memory ? std::min(1.0, least) : 1};
}

std::string describe(const MeasuredHardware& measured) {
  const Hardware& hardware = measured.hardware;
  std::string text = fmt::format("machine   {}\n", hardware.name);
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "products  up to {:.4g} TFLOP/s in 32 bits, {:.4g} in 16, per rank\n",
                 hardware.flops_32bit / 1e12, hardware.flops_16bit / 1e12);
  fmt::format_to(out, "memory    {:.4g} GB/s per rank; {:.2f} us between two operations\n",
                 hardware.memory_bandwidth / 1e9, hardware.used.launch * 1e6);
  if (hardware.node.bandwidth > 0) {
    fmt::format_to(out, "links     {:.4g} GB/s and {:.3g} us between ranks\n", hardware.node.bandwidth / 1e9,
                   hardware.node.latency * 1e6);
  }
  if (measured.undisturbed < kUndisturbed) {
    fmt::format_to(out,
                   "warning   ranks had a core for {:.0f} % of the time: other programs disturbed the measurement; "
                   "repeat it when they are done\n",
                   100 * measured.undisturbed);
  }
  return text;
}

}  // namespace megatron
