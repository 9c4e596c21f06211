#include "bench/benchmark_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "comm/thread_communicator.h"
#include "config/schedules.h"
#include "ops/counting_ops.h"
#include "ops/device.h"
#include "pipeline/executor.h"
#include "pipeline/simulate.h"

namespace megatron {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Sleeps where others compute, and adds up for how long it really did.
class SleepingStage final : public Stage {
 public:
  SleepingStage(bool first, bool last, double seconds, double& busy)
      : receives_(first ? 0 : 1, kNumber), sends_(last ? 0 : 1, kNumber), seconds_(seconds), busy_(&busy) {}

  std::span<const Link> receives() const override { return receives_; }
  std::span<const Link> sends() const override { return sends_; }
  std::unique_ptr<StageSaved> make_saved() const override { return std::make_unique<StageSaved>(); }
  void forward(Context&, const StageData&, const StageData&, StageSaved&) const override { sleep(1); }
  void backward(Context& context, const StageData&, const StageData&, StageSaved&) const override {
    sleep(context.weight_gradients.deferred() ? 1 : 2);
  }
  void backward_weight(Context&, DeferredWeightGradients&, StageSaved&) const override { sleep(1); }

 private:
  void sleep(int times) const {
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(times * seconds_));
    *busy_ += seconds_since(start);
  }

  static constexpr Link kNumber{.width = 1};
  std::vector<Link> receives_, sends_;
  double seconds_;
  double* busy_;
};

struct RankTimes {
  std::vector<double> busy, whole;  // by round
};

/// One rank's rounds, all of which begin together.
RankTimes play(const PipelineCase& benchmark, double seconds, int rounds, Communicator& world) {
  const ProcessGrid grid(world, {.pipeline = benchmark.stages});
  const TensorRegion region(grid, false);
  double busy = 0;
  std::vector<SleepingStage> stages;
  PipelineExecutor::Chunks chunks;
  const int pieces = benchmark.chunks * benchmark.stages;
  for (int chunk = 0; chunk < benchmark.chunks; ++chunk) {
    const int piece = chunk * benchmark.stages + world.rank();
    stages.emplace_back(piece == 0, piece == pieces - 1, seconds / benchmark.chunks, busy);
  }
  for (const SleepingStage& stage : stages) chunks.push_back(&stage);

  const std::vector<Action> actions =
      make_schedule(benchmark.schedule, world.rank(), benchmark.stages, benchmark.micro_batches, benchmark.chunks);
  constexpr std::size_t kSomeBytes = 1024;
  const auto buffers =
      static_cast<std::size_t>(gradient_buffers(benchmark.stages, benchmark.micro_batches, benchmark.chunks));
  Backend backend = make_cpu_backend();
  PipelineExecutor executor(chunks, grid, region,
                            {std::vector<std::size_t>(static_cast<std::size_t>(slot_count(actions)), kSomeBytes),
                             std::vector<std::size_t>(buffers, kSomeBytes)},
                            *backend.device);
  MicroBatch one_number;
  one_number.main.sequence = one_number.samples = 1;
  const std::vector<MicroBatch> micro_batches(static_cast<std::size_t>(benchmark.micro_batches), one_number);
  Arena scratch("scratch");
  Timers timers;
  RankTimes times;
  for (int round = 0; round < rounds; ++round) {
    world.barrier();
    busy = 0;
    const Clock::time_point start = Clock::now();
    executor.run(actions, micro_batches, {}, *backend.ops, scratch, timers);
    times.busy.push_back(busy);
    times.whole.push_back(seconds_since(start));
  }
  return times;
}

}  // namespace

std::vector<PipelineCase> pipeline_cases() {
  std::vector<PipelineCase> cases;
  for (const ScheduleFacts& schedule : kSchedules) {
    for (const int chunks : schedule.chunks ? std::vector{2, 4} : std::vector{1}) {
      cases.push_back({.schedule = std::string(schedule.name), .chunks = chunks});
    }
  }
  return cases;
}

PipelineBubble measure_bubble(const PipelineCase& benchmark, double seconds, int rounds) {
  const int stages = benchmark.stages, micro_batches = benchmark.micro_batches, chunks = benchmark.chunks;
  std::vector<RankTimes> ranks(static_cast<std::size_t>(stages));
  run_as_threads(stages, [&](Communicator& world) {
    ranks[static_cast<std::size_t>(world.rank())] = play(benchmark, seconds, rounds, world);
  });
  std::vector<double> bubbles;
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    double busy = 0, whole = 0;
    for (const RankTimes& rank : ranks) {
      busy += rank.busy[round];
      whole = std::max(whole, rank.whole[round]);
    }
    bubbles.push_back(1 - busy / (stages * whole));
  }
  std::sort(bubbles.begin(), bubbles.end());
  PipelineBubble result{benchmark};
  result.measured = bubbles[bubbles.size() / 2];
  result.by_list = simulate(make_schedules(benchmark.schedule, stages, micro_batches, chunks),
                            {.gradient_buffers = gradient_buffers(stages, micro_batches, chunks)})
                       .bubble_fraction;
  result.formula = analytic_bubble(benchmark.schedule, stages, micro_batches, chunks).value_or(0);
  return result;
}

std::string describe(const std::vector<PipelineBubble>& bubbles) {
  std::string text = fmt::format(
      "pipeline_bubbles: the executor on stages that sleep, ranks as threads; F = half a backward\n"
      "  {:<12}{:>8}{:>15}{:>8}{:>12}{:>12}{:>12}\n",
      "schedule", "stages", "micro-batches", "chunks", "measured", "by its list", "formula");
  for (const PipelineBubble& bubble : bubbles) {
    const PipelineCase& each = bubble.benchmark;
    text +=
        fmt::format("  {:<12}{:>8}{:>15}{:>8}{:>10.1f} %{:>10.1f} %{:>10.1f} %\n", each.schedule, each.stages,
                    each.micro_batches, each.chunks, 100 * bubble.measured, 100 * bubble.by_list, 100 * bubble.formula);
  }
  return text;
}

std::string to_json(const PipelineBubble& bubble) {
  return nlohmann::json{{"case", "pipeline_bubbles"},        {"schedule", bubble.benchmark.schedule},
                        {"stages", bubble.benchmark.stages}, {"micro_batches", bubble.benchmark.micro_batches},
                        {"chunks", bubble.benchmark.chunks}, {"bubble_measured", bubble.measured},
                        {"bubble_by_list", bubble.by_list},  {"bubble_formula", bubble.formula}}
             .dump() +
         '\n';
}

}  // namespace megatron
