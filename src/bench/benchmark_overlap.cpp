#include "bench/benchmark_overlap.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/training_job.h"
#include "comm/communicator_decorator.h"
#include "config/resolve.h"

namespace megatron {

namespace {

Config small_config() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 4;
  model.hidden_size = 768;
  model.attention_heads = 12;
  model.sequence_length = 128;
  model.vocab_size = 2048;
  model.hidden_dropout = model.attention_dropout = 0;
  config.train.global_batch_size = 4;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  return config;
}

OverlapCase data2(const char* layout, bool distributed) {
  Config config = small_config();
  config.parallel.data = 2;
  config.train.micro_batch_size = 2;
  config.optimizer.distributed = distributed;
  resolve(config, 2, nullptr);
  return {layout, config, !distributed};
}

OverlapCase tensor2(const char* layout, bool sequence_parallel) {
  Config config = small_config();
  config.parallel.tensor = 2;
  config.train.micro_batch_size = 4;
  config.parallel.sequence_parallel = sequence_parallel;
  resolve(config, 2, nullptr);
  return {layout, config, false};
}

/// Waits for every operation where it is started, while `waits` says so. Not for pipelines: a send may need what its
/// rank does after it.
class WaitingCommunicator final : public CommunicatorDecorator {
 public:
  WaitingCommunicator(Communicator& inner, const bool& waits) : CommunicatorDecorator(inner), waits_(waits) {}
  WaitingCommunicator(std::unique_ptr<Communicator> inner, const bool& waits)
      : CommunicatorDecorator(std::move(inner)), waits_(waits) {}

 protected:
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<WaitingCommunicator>(std::move(inner), waits_);
  }
  std::uint64_t keep(Pending pending) override {
    if (waits_) pending.wait();
    return CommunicatorDecorator::keep(std::move(pending));
  }

 private:
  const bool& waits_;
};

/// A case in training, with overlap and without.
class OverlapJob {
 public:
  OverlapJob(const OverlapCase& benchmark, int threads, Communicator& world)
      : benchmark_(benchmark), world_(world, waits_), job_(benchmark.config, make_cpu_backend(threads), world_) {}

  /// Seconds per step over this number of steps in a row, on the slowest rank.
  double seconds(bool overlap, int steps) {
    waits_ = !overlap && !benchmark_.by_key;
    job_.overlap_gradients(overlap);
    return job_.seconds(steps);
  }

 private:
  const OverlapCase& benchmark_;
  bool waits_ = false;
  WaitingCommunicator world_;
  TrainingJob job_;
};

/// By round.
struct Samples {
  std::vector<double> without, with;
};

}  // namespace

std::vector<OverlapCase> overlap_cases() {
  return {data2("data 2", false), data2("data 2, distributed optimizer", true), tensor2("tensor 2", false),
          tensor2("tensor 2, sequence parallel", true)};
}

std::vector<OverlapTimes> measure_overlap(const std::vector<OverlapCase>& cases, const OverlapSettings& settings,
                                          Communicator& world) {
  verify(world.size() == 2, ErrorKind::configuration, "overlap is measured on 2 ranks, not {}", world.size());
  std::vector<std::unique_ptr<OverlapJob>> jobs;
  for (const OverlapCase& each : cases) jobs.push_back(std::make_unique<OverlapJob>(each, settings.threads, world));
  std::vector<Samples> samples(cases.size());
  for (int round = -1; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      for (const bool overlap : {round % 2 == 0, round % 2 != 0}) {  // who comes first changes
        const double seconds = jobs[i]->seconds(overlap, round < 0 ? 1 : settings.steps);
        if (round < 0) continue;  // to warm up
        (overlap ? samples[i].with : samples[i].without).push_back(seconds);
      }
    }
  }
  std::vector<OverlapTimes> times;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool data = cases[i].config.parallel.data > 1;
    times.push_back({.layout = cases[i].layout,
                     .without = median(samples[i].without),
                     .with = median(samples[i].with),
                     .ratio = median_ratio(samples[i].with, samples[i].without),
                     .over_plain = data ? median_ratio(samples[i].with, samples[0].without) : 0});
  }
  return times;
}

std::string describe(const std::vector<OverlapTimes>& times) {
  std::string text = fmt::format(
      "overlap: 4 layers of hidden size 768, batch 4 x 128, 2 ranks; ms a step, with and without in turn\n"
      "  {:<32}{:>10}{:>10}{:>8}{:>27}\n",
      "layout", "without", "with", "ratio", "over plain data 2 without");
  for (const OverlapTimes& each : times) {
    text += fmt::format("  {:<32}{:>10.1f}{:>10.1f}{:>8.3f}{:>27}\n", each.layout, 1e3 * each.without, 1e3 * each.with,
                        each.ratio, each.over_plain > 0 ? fmt::format("{:.3f}", each.over_plain) : "");
  }
  return text;
}

std::string to_json(const OverlapTimes& times) {
  nlohmann::json json{{"case", "overlap"},
                      {"layout", times.layout},
                      {"step_seconds_without", times.without},
                      {"step_seconds_with", times.with},
                      {"ratio", times.ratio}};
  if (times.over_plain > 0) json["over_plain"] = times.over_plain;
  return json.dump() + '\n';
}

}  // namespace megatron
