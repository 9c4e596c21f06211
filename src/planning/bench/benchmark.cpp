#include "planning/bench/benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/system/host_name.h"
#include "base/system/log.h"
#include "base/system/memory_usage.h"
#include "models/families/flops.h"
#include "planning/bench/sgemm_reference.h"
#include "planning/bench/timed_ops.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

double minor_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// Samples of the parts of a step by name, and the calls in the last.
using PartSamples = std::map<std::string, std::pair<std::vector<Seconds>, int>>;

std::vector<BenchmarkPart> medians(const PartSamples& parts) {
  std::vector<BenchmarkPart> result;
  for (const auto& [name, part] : parts) result.push_back({name, median(part.first), part.second});
  return result;
}

// The case's configuration on the device that is asked for.
Config config_on(const Case& benchmark, const BenchmarkSettings& settings, Communicator& world) {
  Config config = benchmark.config;
  config.run.device = settings.device;
  config.run.threads = settings.threads;
  std::vector<std::string> warnings;
  config.run = choose_device(config.run, world, warnings);
  for (const std::string& warning : warnings) Log(world.rank() == 0).warning(std::string_view(warning));
  return config;
}

// Verbs are timed where they are done when their call returns.
Compute timed_compute(const Config& config, Communicator& world, int local_rank, TimedOps*& timed) {
  Compute compute = start_compute(config.run, config.precision.dtype(), world, host_name(), local_rank);
  if (compute.backend.device->is_host_memory()) timed = TimedOps::around(compute.backend);
  return compute;
}

void count_flops(std::vector<BenchmarkPart>& verbs, const MoeConfig& moe, const MemoryPlan& plan) {
  for (BenchmarkPart& verb : verbs) {
    // Without drops a plan multiplies all places of a round, a step those that are filled.
    if (verb.name == "matmul" && moe.drops() != ExpertDrop::none) verb.flops = plan.matmul_flops;
    // Two of the seven products of the scores' size are the forward's.
    if (verb.name == "attention_forward") verb.flops = plan.attention_flops * 2 / 7;
    if (verb.name == "attention_backward") verb.flops = plan.attention_flops * 5 / 7;
  }
}

std::vector<BenchmarkPart> parts_of(const SgemmReference& sgemm) {
  std::vector<BenchmarkPart> parts;
  for (const SgemmReference::Product& product : sgemm.products()) {
    parts.push_back({product.name, median(product.samples), product.calls, product.flops});
  }
  return parts;
}

// A step of the whole job: it takes as long as its slowest rank.
Seconds of_job(Seconds mine, Communicator& world) {
  return {world.all_reduce_value(mine.wall, kReportMaximum), world.all_reduce_value(mine.cpu, kReport) / world.size()};
}

Seconds mean_over_ranks(Seconds mine, Communicator& world) {
  return {world.all_reduce_value(mine.wall, kReport) / world.size(),
          world.all_reduce_value(mine.cpu, kReport) / world.size()};
}

// A model in training on this rank, and what its steps have taken.
class BenchmarkJob {
 public:
  BenchmarkJob(const Case& benchmark, const BenchmarkSettings& settings, Communicator& world)
      : config_(config_on(benchmark, settings, world)),
        world_(world),
        job_(config_, timed_compute(config_, world, settings.local_rank, ops_), world) {
    const ProcessGrid& grid = job_.grid();
    job_.timers().set_ranges(backend().ops->ranges());
    meter_.timers = &job_.timers();
    for (Communicator* group : {&grid.tensor(), &grid.expert(), &grid.copies(), &grid.copies(CopyGroup::experts),
                                &grid.shards(), &grid.shards(CopyGroup::experts), &grid.replicas(), &grid.model()}) {
      group->set_meter(&meter_);
    }
  }

  Backend& backend() { return job_.backend(); }
  double tokens() const { return static_cast<double>(config_.train.global_batch_size * config_.model.sequence_length); }

  /// Times and page faults of the steps of one kind.
  struct Samples {
    std::vector<Seconds> seconds;
    std::vector<double> communication, page_faults;
    PartSamples sections, verbs;
  };

  void step(bool overlap, Samples* samples) {
    job_.overlap_gradients(overlap);
    world_.barrier();
    if (ops_ != nullptr) ops_->take();
    const double faults = minor_page_faults();
    const Seconds seconds = job_.run(1);
    if (samples == nullptr) return;
    samples->page_faults.push_back(minor_page_faults() - faults);
    for (const Section section :
         {Section::forward, Section::backward, Section::communication, Section::optimizer, Section::other}) {
      samples->sections[name_of(section)].first.push_back({.wall = job_.timers().seconds(section)});
    }
    for (const auto& [verb, cost] : ops_ != nullptr ? ops_->take() : TimedOps::Costs()) {
      auto& [seconds_of_calls, calls] = samples->verbs[verb];
      seconds_of_calls.push_back(cost.seconds);
      calls = cost.calls;
    }
    const double communication = job_.timers().seconds(Section::communication);
    samples->communication.push_back(-world_.all_reduce_value(-communication, kReportMaximum));
    samples->seconds.push_back(of_job(seconds, world_));
  }

  void describe_steps(BenchmarkResult& result, const Samples& samples) {
    result.device = backend().device->description();
    result.step = median(samples.seconds);
    result.communication = median(samples.communication);
    result.page_faults = median(samples.page_faults);
    result.sections = medians(samples.sections);
    result.verbs = medians(samples.verbs);
    count_flops(result.verbs, config_.model.moe, job_.replica().plan());
    result.peak_resident_bytes = world_.all_reduce_value(static_cast<double>(peak_resident_bytes()), kReport);
    result.planned_bytes = static_cast<double>(job_.replica().plan().total());
  }

 private:
  Config config_;
  Communicator& world_;
  TimedOps* ops_ = nullptr;
  TrafficMeter meter_;
  TrainingJob job_;
};

}  // namespace

BenchmarkResult run_benchmark(const Case& benchmark, const BenchmarkSettings& settings, Communicator& world) {
  constexpr int warm_up = 2;
  const Config& config = benchmark.config;
  BenchmarkJob job(benchmark, settings, world);
  std::optional<SgemmReference> sgemm;
  if (!settings.training_only) {
    const std::int64_t samples = config.train.global_batch_size / config.parallel.data;
    sgemm.emplace(config.model, config.parallel.tensor, samples, config.precision.dtype(), job.backend());
  }

  BenchmarkJob::Samples steps, overlapped_steps;
  for (int step = 0; step < warm_up; ++step) job.step(false, nullptr);
  for (int step = 0; step < (settings.steps > 0 ? settings.steps : benchmark.steps); ++step) {
    world.barrier();
    if (sgemm) sgemm->measure();
    job.step(false, &steps);
    if (config.parallel.data > 1) job.step(true, &overlapped_steps);
  }

  BenchmarkResult result;
  result.ranks = world.size();
  result.threads = settings.threads;
  result.tokens = job.tokens();
  result.model_flops = flops_per_token(config.model).model * result.tokens;
  job.describe_steps(result, steps);
  if (config.parallel.data > 1) {
    result.overlapped_step = median(overlapped_steps.seconds);
    result.overlapped_communication = median(overlapped_steps.communication);
  }
  if (sgemm) {
    result.sgemm = mean_over_ranks(sgemm->seconds(), world);
    result.sgemm_flops = sgemm->flops();
    result.products = parts_of(*sgemm);
  }
  return result;
}

}  // namespace megatron
