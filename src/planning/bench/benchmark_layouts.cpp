#include <memory>

#include "models/families/flops.h"
#include "planning/bench/comparisons.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

/// A case in training, and what its steps took.
class LayoutJob {
 public:
  LayoutJob(const Case& benchmark, Communicator& world)
      : benchmark_(benchmark), job_(benchmark.config, cpu_compute(), world) {
    for (Communicator* group : job_.grid().groups()) group->set_meter(&meter_);
  }

  void measure(int steps, bool warm_up = false) {
    meter_ = {};
    const double seconds = job_.seconds(steps);
    if (warm_up) return;
    seconds_.push_back(seconds);
    bytes_sent_ = meter_.bytes_sent / steps;
  }

  Row row(const LayoutJob& first) const {
    const Config& config = benchmark_.config;
    const double ratio = median_ratio(first.seconds_, seconds_) * tokens() / first.tokens();
    const double work = flops_per_token(config.model).model / flops_per_token(first.benchmark_.config.model).model;
    return {benchmark_.name, median(seconds_), tokens() / median(seconds_),  ratio,
            ratio * work,    bytes_sent_,      job_.replica().used().total()};
  }

 private:
  double tokens() const {
    return static_cast<double>(benchmark_.config.train.global_batch_size * benchmark_.config.model.sequence_length);
  }

  const Case& benchmark_;
  TrafficMeter meter_;
  TrainingJob job_;
  std::vector<double> seconds_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace

Report measure_layouts(const LayoutComparison& comparison, int rounds, Communicator& world) {
  constexpr int kSteps = 3;  // a row: what a step leaves in flight is the next one's to hide
  std::vector<std::unique_ptr<LayoutJob>> jobs;
  for (const Case& each : comparison.cases) jobs.push_back(std::make_unique<LayoutJob>(each, world));
  for (const auto& job : jobs) job->measure(1, true);
  for (int round = 0; round < rounds; ++round) {
    for (const auto& job : jobs) job->measure(kSteps);
  }
  std::vector<Row> rows;
  for (const auto& job : jobs) rows.push_back(job->row(*jobs.front()));
  Report report = table(comparison.name, comparison.title,
                        {{"layout", "layout"},
                         {"ms a step", "step_seconds", 1, 1e3},
                         {"tokens/s", "tokens_per_second"},
                         {"of first", "ratio", 3},
                         {"work of first", "work_ratio", 3},
                         {"MiB sent", "bytes_sent", 1, 1.0 / (1 << 20)},
                         {"MiB held", "bytes_held", 1, 1.0 / (1 << 20)}},
                        rows);
  report.text +=
      "  of first, work of first: tokens/s and model FLOP/s relative to the first row; MiB: of the first rank\n";
  return report;
}

}  // namespace megatron
