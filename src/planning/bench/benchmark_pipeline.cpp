#include "planning/bench/benchmark_pipeline.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "config/schema/schedules.h"
#include "distributed/comm/thread_communicator.h"
#include "inference/decoding/generate.h"
#include "planning/bench/cases.h"
#include "planning/bench/training_job.h"
#include "training/pipeline/executor.h"
#include "training/pipeline/simulate.h"

namespace megatron {

namespace {

/// A rank of a pipeline, and how long it has slept.
class SleepingRank {
 public:
  void sleep(double seconds) {
    now_.asked += seconds;
    now_.slept += time_of([&] { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }).wall;
  }
  /// Plays it this number of times; all ranks of `world` begin together.
  void play(int rounds, Communicator& world, const std::function<void()>& round) {
    for (int i = 0; i < rounds; ++i) {
      world.barrier();
      now_ = {.begin = Seconds::now().wall};
      round();
      now_.end = Seconds::now().wall;
      rounds_.push_back(now_);
    }
  }
  const std::vector<SleepingRound>& rounds() const { return rounds_; }

 private:
  SleepingRound now_;
  std::vector<SleepingRound> rounds_;
};

/// Runs `body`, which calls play(), on this number of threads.
std::vector<SleepingRound> sleep_on_ranks(int ranks, const std::function<void(Communicator&, SleepingRank&)>& body) {
  std::vector<SleepingRank> all(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) { body(world, all[static_cast<std::size_t>(world.rank())]); });
  std::vector<SleepingRound> rounds = all[0].rounds();
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      const auto& [asked, slept, begin, end] = all[rank].rounds()[i];
      rounds[i] = {rounds[i].asked + asked, rounds[i].slept + slept, std::min(rounds[i].begin, begin),
                   std::max(rounds[i].end, end)};
    }
  }
  return rounds;
}

double bubble_of(const std::vector<SleepingRound>& rounds, int ranks) {
  std::vector<double> bubbles;
  for (const auto& [asked, slept, begin, end] : rounds) bubbles.push_back(1 - slept / (ranks * (end - begin)));
  return median(bubbles);
}

/// Sleeps where others compute.
class SleepingStage final : public Stage {
 public:
  SleepingStage(bool first, bool last, double seconds, SleepingRank& rank)
      : receives_(first ? 0 : 1, kNumber), sends_(last ? 0 : 1, kNumber), seconds_(seconds), rank_(&rank) {}

  std::span<const Link> receives() const override { return receives_; }
  std::span<const Link> sends() const override { return sends_; }
  std::unique_ptr<StageSaved> make_saved() const override { return std::make_unique<StageSaved>(); }
  void forward(Context&, const StageData&, const StageData&, StageSaved&) const override { sleep(1); }
  void backward(Context& context, const StageData&, const StageData&, StageSaved&) const override {
    sleep(context.weight_gradients->deferred() ? 1 : 2);
  }
  void backward_weight(Context&, DeferredWeightGradients&, StageSaved&) const override { sleep(1); }

 private:
  void sleep(int times) const { rank_->sleep(times * seconds_); }

  static constexpr Link kNumber{.width = 1};
  std::vector<Link> receives_, sends_;
  double seconds_;
  SleepingRank* rank_;
};

void play(const PipelineCase& benchmark, double seconds, int rounds, Communicator& world, SleepingRank& rank) {
  const auto& [schedule, stages, micro_batches, chunks] = benchmark;
  const ProcessGrid grid(world, {.pipeline = stages});
  const TensorRegion region(grid, false);
  std::vector<SleepingStage> sleeping;
  for (int piece = world.rank(); piece < chunks * stages; piece += stages) {
    sleeping.emplace_back(piece == 0, piece == chunks * stages - 1, seconds / chunks, rank);
  }
  PipelineExecutor::Chunks pointers;
  for (const SleepingStage& each : sleeping) pointers.push_back(&each);
  const std::vector<Action> actions = make_schedule(schedule, world.rank(), stages, micro_batches, chunks);
  constexpr std::size_t some_bytes = 1024;
  ExecutorMemory memory;
  memory.slots.resize(static_cast<std::size_t>(slot_count(actions)), some_bytes);
  memory.gradient_buffers.resize(static_cast<std::size_t>(gradient_buffers(stages, micro_batches, chunks)), some_bytes);
  Backend backend = make_cpu_backend();
  PipelineExecutor executor(pointers, grid, region, memory, *backend.device);
  MicroBatch one_number;
  one_number.main.sequence = one_number.samples = 1;
  const std::vector<MicroBatch> numbers(static_cast<std::size_t>(micro_batches), one_number);
  Arena scratch("scratch");
  Timers timers;
  rank.play(rounds, world, [&] { executor.run(actions, numbers, {}, *backend.ops, scratch, timers); });
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
  const auto& [schedule, stages, micro_batches, chunks] = benchmark;
  PipelineBubble result{.benchmark = benchmark};
  const auto body = [&](Communicator& world, SleepingRank& rank) { play(benchmark, seconds, rounds, world, rank); };
  result.rounds = sleep_on_ranks(stages, body);
  result.measured = bubble_of(result.rounds, stages);
  result.by_list = simulate(make_schedules(schedule, stages, micro_batches, chunks),
                            {.gradient_buffers = gradient_buffers(stages, micro_batches, chunks)})
                       .bubble_fraction;
  result.formula = analytic_bubble(schedule, stages, micro_batches, chunks).value_or(0);
  return result;
}

Report report(const std::vector<PipelineBubble>& bubbles) {
  std::vector<Row> rows;
  for (const auto& [each, rounds, measured, by_list, formula] : bubbles) {
    rows.push_back({each.schedule, each.stages, each.micro_batches, each.chunks, measured, by_list, formula});
  }
  return table("pipeline_bubbles",
               "the executor on stages that sleep, ranks as threads; shares of the time; F = half a backward",
               {{"schedule", "schedule"},
                {"stages", "stages"},
                {"micro-batches", "micro_batches"},
                {"chunks", "chunks"},
                {"measured", "bubble_measured", 1, 100, " %"},
                {"by its list", "bubble_by_list", 1, 100, " %"},
                {"formula", "bubble_formula", 1, 100, " %"}},
               rows);
}

namespace {

/// Sleeps where a layer has computed its keys and values. Each layer appends both to the cache once in a pass.
class SleepingOps final : public OpsDecorator {
 public:
  SleepingOps(std::unique_ptr<Ops> ops, double seconds, SleepingRank& rank)
      : OpsDecorator(std::move(ops)), seconds_(seconds), rank_(rank) {}

 private:
  void pass(const char* verb, const std::function<void()>& call) override {
    call();
    if (std::string_view(verb) == "append_rows") rank_.sleep(seconds_ / 2);
  }

  double seconds_;
  SleepingRank& rank_;
};

/// A layer on each stage, as small as can be, and a prompt per group, of one token, so that all passes are alike.
void decode(const DecodingPipeline& benchmark, double seconds, int rounds, Communicator& world, SleepingRank& rank) {
  const Config config = training_config(gpt(benchmark.stages, 16, 2, benchmark.tokens, 100), 1,
                                        [&](Config& edited) { edited.parallel.pipeline = benchmark.stages; });
  Compute compute = cpu_compute();
  compute.backend.ops = std::make_unique<SleepingOps>(std::move(compute.backend.ops), seconds, rank);
  const std::vector<GenerationJob> jobs(static_cast<std::size_t>(benchmark.groups),
                                        GenerationJob{.prompt = 0, .sample = 0, .tokens = {1}});
  GenerationOptions options;
  options.sampling.max_new_tokens = benchmark.tokens;
  options.sampling.top_k = 1;
  options.ends = {-1};  // no token
  Decoder decoder(config, grid_shape(config), world, std::move(compute), DType::f32,
                  sizes_for(jobs, options, config.model.sequence_length, 1, benchmark.groups));
  decoder.initialize(1);
  rank.play(rounds, world, [&] { generate(decoder, jobs, options, {}, {}); });
}

}  // namespace

DecodingPipeline measure_decoding_pipeline(double seconds, int rounds) {
  DecodingPipeline result;
  const auto body = [&](Communicator& world, SleepingRank& rank) { decode(result, seconds, rounds, world, rank); };
  result.rounds = sleep_on_ranks(result.stages, body);
  result.bubble = bubble_of(result.rounds, result.stages);
  const auto passes = static_cast<double>(result.groups * result.tokens);
  result.by_order = (result.stages - 1) / (passes + result.stages - 1);
  return result;
}

}  // namespace megatron
