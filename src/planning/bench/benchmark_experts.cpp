#include "planning/bench/comparisons.h"

#include <memory>
#include <optional>

#include "backend/ops/backends.h"
#include "models/families/flops.h"
#include "planning/bench/sgemm_reference.h"
#include "planning/bench/timed_ops.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

/// A case in training, and what its steps took.
class ExpertsJob {
 public:
  ExpertsJob(const Case& benchmark, Communicator& world)
      : benchmark_(benchmark), job_(benchmark.config, timed_compute(), world) {}

  void measure(bool warm_up = false) {
    const double step = job_.seconds(1);
    const TimedOps::Costs costs = ops_->take();
    if (warm_up) return;
    const auto share_of = [&](auto... verbs) {
      double sum = 0;
      for (const char* verb : {verbs...}) {
        if (const auto found = costs.find(verb); found != costs.end()) sum += found->second.seconds.wall;
      }
      return sum / step;
    };
    seconds_.push_back(step);
    moving_.push_back(share_of("dispatch_rows", "combine_rows", "combine_gates_backward"));
    routing_.push_back(share_of("route_forward", "plan_routes", "route_losses", "route_backward"));
  }

  /// `sgemm`: FLOP/s of the bare products; 0: not measured.
  Row row(const ExpertsJob& first, double sgemm) const {
    const TrainConfig& train = benchmark_.config.train;
    const auto tokens = static_cast<double>(train.global_batch_size * benchmark_.config.model.sequence_length);
    const double seconds = median(seconds_), speed = tokens / seconds;
    const double ratio = median_ratio(first.seconds_, seconds_) * flops() / first.flops();
    const double share = sgemm > 0 ? flops() * speed / sgemm : 0;
    return {benchmark_.name, seconds, speed, ratio, share, median(moving_), median(routing_)};
  }

 private:
  double flops() const { return flops_per_token(benchmark_.config.model).model; }
  Compute timed_compute() {
    Compute compute = cpu_compute();
    ops_ = TimedOps::around(compute.backend);
    return compute;
  }

  const Case& benchmark_;
  TimedOps* ops_ = nullptr;
  TrainingJob job_;
  std::vector<double> seconds_, moving_, routing_;
};

}  // namespace

Report measure_experts(const std::vector<Case>& cases, int rounds, Communicator& world) {
  std::vector<std::unique_ptr<ExpertsJob>> jobs;
  for (const Case& each : cases) jobs.push_back(std::make_unique<ExpertsJob>(each, world));
  Backend bare = make_cpu_backend();
  const Config& first = cases.front().config;
  std::optional<SgemmReference> sgemm;
  if (world.size() == 1) sgemm.emplace(first.model, 1, first.train.global_batch_size, first.precision.dtype(), bare);
  for (const auto& job : jobs) job->measure(true);
  for (int round = 0; round < rounds; ++round) {
    if (sgemm) sgemm->measure();
    for (const auto& job : jobs) job->measure();
  }
  const double rate = sgemm ? sgemm->flops() / sgemm->seconds().wall : 0;
  std::vector<Row> rows;
  for (const auto& job : jobs) rows.push_back(job->row(*jobs.front(), rate));
  Report report = table("moe",
                        "6 layers of hidden size 768, batch 4 x 256; 8 experts, 2 per token, of half the dense inner "
                        "width, in turn",
                        {{"case", "name"},
                         {"ms a step", "step_seconds", 1, 1e3},
                         {"tokens/s", "tokens_per_second"},
                         {"of first", "ratio", 3},
                         {"of sgemm", "share_of_sgemm", 1, 100, " %"},
                         {"moving", "moving", 1, 100, " %"},
                         {"routing", "routing", 1, 100, " %"}},
                        rows);
  report.text += "  of first: model FLOP/s over the first line's; moving, routing: parts of the step\n";
  return report;
}

}  // namespace megatron
