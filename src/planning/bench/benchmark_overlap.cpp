#include "planning/bench/comparisons.h"

#include <memory>

#include "distributed/comm/communicator_decorator.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

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
  OverlapJob(const Config& config, int threads, Communicator& world)
      : by_key_(config.parallel.data > 1 && !config.optimizer.shares().state),
        world_(world, waits_),
        job_(config, cpu_compute(threads), world_) {}

  /// Seconds per step over this number of steps in a row, on the slowest rank.
  double seconds(bool overlap, int steps) {
    waits_ = !overlap && !by_key_;
    job_.overlap_gradients(overlap);
    return job_.seconds(steps);
  }

 private:
  bool by_key_;  // overlap is a matter of parallel.overlap_gradients
  bool waits_ = false;
  WaitingCommunicator world_;
  TrainingJob job_;
};

/// By round.
struct Samples {
  std::vector<double> without, with;
};

}  // namespace

Report measure_overlap(const std::vector<Case>& cases, const OverlapSettings& settings, Communicator& world) {
  verify(world.size() == 2, ErrorKind::configuration, "overlap is measured on 2 ranks, not {}", world.size());
  std::vector<std::unique_ptr<OverlapJob>> jobs;
  for (const Case& each : cases) jobs.push_back(std::make_unique<OverlapJob>(each.config, settings.threads, world));
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
  std::vector<Row> rows;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [without, with] = samples[i];
    rows.push_back({cases[i].name, median(without), median(with), median_ratio(with, without), nullptr});
    if (cases[i].config.parallel.data > 1) rows.back().back() = median_ratio(with, samples[0].without);
  }
  return table("overlap", "4 layers of hidden size 768, batch 4 x 128, 2 ranks; ms a step, with and without in turn",
               {{"layout", "layout"},
                {"without", "step_seconds_without", 1, 1e3},
                {"with", "step_seconds_with", 1, 1e3},
                {"ratio", "ratio", 3},
                {"over plain data 2 without", "over_plain", 3}},
               rows);
}

}  // namespace megatron
