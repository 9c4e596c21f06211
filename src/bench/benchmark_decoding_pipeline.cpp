#include <algorithm>
#include <chrono>
#include <thread>

#include "base/stopwatch.h"
#include "bench/benchmark_generation.h"
#include "comm/thread_communicator.h"
#include "config/resolve.h"
#include "inference/generate.h"
#include "ops/ops_decorator.h"
#include "train/grid.h"

namespace megatron {

namespace {

/// Sleeps where a layer has computed its keys and values, and adds up for how long it really did. Each layer appends
/// both to the cache once in a pass.
class SleepingOps final : public OpsDecorator {
 public:
  SleepingOps(std::unique_ptr<Ops> ops, double seconds, double& busy)
      : OpsDecorator(std::move(ops)), seconds_(seconds), busy_(busy) {}

 private:
  void pass(const char* verb, const std::function<void()>& call) override {
    call();
    if (std::string_view(verb) != "append_rows") return;
    const double start = Seconds::now().wall;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_ / 2));
    busy_ += Seconds::now().wall - start;
  }

  double seconds_;
  double& busy_;
};

/// A layer on each stage, as small as can be.
Config tiny_pipeline(int stages, std::int64_t sequence) {
  Config config;
  config.model.layers = stages;
  config.model.hidden_size = 16;
  config.model.attention_heads = 2;
  config.model.sequence_length = sequence;
  config.model.vocab_size = 100;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.parallel.pipeline = stages;
  config.train.global_batch_size = config.train.micro_batch_size = 1;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  config.run.device = "cpu";
  resolve(config, stages, nullptr);
  return config;
}

struct RankTimes {
  std::vector<double> busy, begin, end;  // by round; of one clock for all ranks
};

/// One rank's rounds, all of which begin together: a prompt per group, of one token, so that all passes are alike.
RankTimes play(const DecodingPipeline& benchmark, double seconds, int rounds, Communicator& world) {
  const Config config = tiny_pipeline(benchmark.stages, benchmark.tokens);
  double busy = 0;
  Compute compute{.backend = make_cpu_backend(), .transport = {}, .description = {}};
  compute.backend.ops = std::make_unique<SleepingOps>(std::move(compute.backend.ops), seconds, busy);
  const std::vector<GenerationJob> jobs(static_cast<std::size_t>(benchmark.groups),
                                        GenerationJob{.prompt = 0, .sample = 0, .tokens = {1}});
  GenerationOptions options;
  options.sampling.max_new_tokens = benchmark.tokens;
  options.sampling.top_k = 1;
  options.ends = {-1};  // no token
  Decoder decoder(config, grid_shape(config), world, std::move(compute), DType::f32,
                  sizes_for(jobs, options, config.model.sequence_length, 1, benchmark.groups));
  decoder.initialize(1);
  RankTimes times;
  for (int round = 0; round < rounds; ++round) {
    world.barrier();
    busy = 0;
    times.begin.push_back(Seconds::now().wall);
    generate(decoder, jobs, options, {}, {});
    times.end.push_back(Seconds::now().wall);
    times.busy.push_back(busy);
  }
  return times;
}

}  // namespace

DecodingPipeline measure_decoding_pipeline(double seconds, int rounds) {
  DecodingPipeline result;
  std::vector<RankTimes> ranks(static_cast<std::size_t>(result.stages));
  run_as_threads(result.stages, [&](Communicator& world) {
    ranks[static_cast<std::size_t>(world.rank())] = play(result, seconds, rounds, world);
  });
  std::vector<double> bubbles;
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    double busy = 0, begin = ranks[0].begin[round], end = ranks[0].end[round];
    for (const RankTimes& rank : ranks) {
      busy += rank.busy[round];
      begin = std::min(begin, rank.begin[round]);
      end = std::max(end, rank.end[round]);
    }
    bubbles.push_back(1 - busy / (result.stages * (end - begin)));
  }
  result.bubble = median(bubbles);
  const auto passes = static_cast<double>(result.groups * result.tokens);
  result.by_order = (result.stages - 1) / (passes + result.stages - 1);
  return result;
}

}  // namespace megatron
