#include "bench/benchmark_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "base/stopwatch.h"
#include "bench/random_batch.h"
#include "config/resolve.h"
#include "inference/generate.h"
#include "train/grid.h"
#include "train/replica.h"

namespace megatron {

namespace {

Config config_of(const ModelConfig& model, std::int64_t sequence) {
  Config config;
  config.model = model;
  config.model.sequence_length = sequence;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.train.global_batch_size = config.train.micro_batch_size = 1;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  config.run.device = "cpu";
  resolve(config, 1, nullptr);
  return config;
}

/// A core's rate of reading memory that no cache holds.
class ReadBandwidth {
 public:
  ReadBandwidth() : numbers_(*backend_.device, kBytes) {
    backend_.ops->fill(numbers_.tensor({static_cast<std::int64_t>(kBytes / sizeof(float))}, DType::f32), 1);
  }
  double bytes_per_second() {
    const auto* const x = reinterpret_cast<const float*>(numbers_.data());
    const Seconds seconds = time_of([&] {
      float sums[kSums] = {};
      for (std::size_t i = 0; i < kBytes / sizeof(float); i += kSums) {
#pragma omp simd
        for (std::size_t lane = 0; lane < kSums; ++lane) sums[lane] += x[i + lane];
      }
      for (const float sum : sums) sum_ = sum_ + sum;  // volatile: the loop cannot be left out
    });
    return static_cast<double>(kBytes) / seconds.wall;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{256} << 20, kSums = 64;
  Backend backend_ = make_cpu_backend();
  Buffer numbers_;
  volatile float sum_ = 0;
};

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t number, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(number), 0, 0}, 1);
    tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(vocab)));
  }
  return tokens;
}

Compute cpu_compute() {
  return {.backend = make_cpu_backend(), .transport = {}, .description = {}};
}

/// Text of random weights in one precision.
class DecodingJob {
 public:
  DecodingJob(const GenerationCase& benchmark, DType type, Communicator& world)
      : benchmark_(benchmark),
        config_(config_of(benchmark.model, benchmark.model.sequence_length)),
        decoder_(config_, grid_shape(config_), world, cpu_compute(), type,
                 {.samples = benchmark.batch,
                  .groups = 1,
                  .capacity = std::max(benchmark.prefill, benchmark.prompt + benchmark.tokens),
                  .first_rows = benchmark.prefill,
                  .logits_rows = benchmark.batch}),
        element_(static_cast<double>(size_of(type))) {
    decoder_.initialize(1);
  }

  /// Seconds of a step after the prompts have been read.
  double step(std::int64_t batch) {
    std::vector<GenerationJob> jobs;
    for (std::int64_t i = 0; i < batch; ++i) {
      jobs.push_back({.prompt = i, .tokens = random_tokens(benchmark_.prompt, i, config_.model.vocab_size)});
    }
    GenerationOptions options;
    options.sampling.max_new_tokens = benchmark_.tokens;
    options.sampling.top_k = 1;
    options.ends = {-1};  // no token
    std::vector<double> times;
    generate(decoder_, jobs, options, {}, [&](std::size_t job, std::int32_t) {
      if (job == 0) times.push_back(Seconds::now().wall);
    });
    std::vector<double> steps;
    for (std::size_t i = 1; i < times.size(); ++i) steps.push_back(times[i] - times[i - 1]);
    return median(steps);
  }

  /// Bytes that a step reads: all weights but the positions' (the words' are the head's too), and the keys and values
  /// so far.
  double bytes(std::int64_t batch) const {
    const ModelConfig& model = config_.model;
    const auto positions = static_cast<double>(model.max_position_embeddings * model.hidden_size);
    const auto mean_tokens = static_cast<double>(benchmark_.prompt) + static_cast<double>(benchmark_.tokens) / 2;
    const double width = static_cast<double>(model.hidden_size) * static_cast<double>(model.query_groups) /
                         static_cast<double>(model.attention_heads);
    return static_cast<double>(decoder_.memory().weights) - positions * element_ +
           static_cast<double>(batch * model.layers) * 2 * width * mean_tokens * element_;
  }

  /// Tokens per second of reading a prompt.
  double prefill() {
    const DecoderPass pass{.first_sample = 0,
                           .tokens = {random_tokens(benchmark_.prefill, 0, config_.model.vocab_size)},
                           .offsets = {0},
                           .wanted = {1}};
    const Seconds seconds = time_of([&] { decoder_.run(0, pass, logits_); });
    return static_cast<double>(benchmark_.prefill) / seconds.wall;
  }

 private:
  const GenerationCase& benchmark_;
  Config config_;
  Decoder decoder_;
  double element_;
  std::vector<float> logits_;
};

/// Forward passes of a training micro-batch.
class TrainingJob {
 public:
  TrainingJob(const GenerationCase& benchmark, Communicator& world)
      : config_(config_of(benchmark.model, benchmark.prefill)),
        backend_(make_cpu_backend()),
        grid_(world, grid_shape(config_)),
        replica_(config_, grid_, backend_),
        batch_(config_, 0, *backend_.device) {}

  /// Tokens per second, by the timers of the step.
  double forward() {
    timers_.reset();
    replica_.forward_backward(batch_.micro_batches(), ++step_, batch_.loss(), timers_);
    return static_cast<double>(config_.model.sequence_length) / timers_.seconds(Section::forward);
  }

 private:
  Config config_;
  Backend backend_;
  ProcessGrid grid_;
  Timers timers_;
  Replica replica_;
  RandomBatch batch_;
  std::int64_t step_ = 0;
};

/// By round.
struct Samples {
  std::vector<double> bandwidth, steps[4], prefill, training;

  template <class Value>
  double of_rounds(const Value& value) const {
    std::vector<double> values;
    for (std::size_t round = 0; round < bandwidth.size(); ++round) values.push_back(value(round));
    return median(values);
  }
  double ratio(const std::vector<double>& over, const std::vector<double>& under) const {
    return of_rounds([&](std::size_t round) { return over[round] / under[round]; });
  }
};

}  // namespace

GenerationCase generation_case() {
  GenerationCase benchmark;
  ModelConfig& model = benchmark.model;
  model.layers = 12;
  model.hidden_size = 768;
  model.attention_heads = 12;
  model.sequence_length = model.max_position_embeddings = 1024;
  model.vocab_size = 50257;
  return benchmark;
}

GenerationSpeed measure_generation(const GenerationCase& benchmark, int rounds, Communicator& world) {
  ReadBandwidth bandwidth;
  DecodingJob fp32(benchmark, DType::f32, world), bf16(benchmark, DType::bf16, world);
  TrainingJob training(benchmark, world);
  const std::int64_t batch = benchmark.batch;
  Samples samples;
  for (int round = -1; round < rounds; ++round) {
    Samples unused;
    Samples& to = round < 0 ? unused : samples;  // the first warms up
    to.bandwidth.push_back(bandwidth.bytes_per_second());
    to.steps[0].push_back(fp32.step(1));
    to.steps[1].push_back(fp32.step(batch));
    to.steps[2].push_back(bf16.step(1));
    to.steps[3].push_back(bf16.step(batch));
    to.prefill.push_back(fp32.prefill());
    to.training.push_back(training.forward());
  }
  const auto& steps = samples.steps;
  const auto share = [&](const std::vector<double>& seconds, double bytes) {
    return samples.of_rounds([&](std::size_t i) { return bytes / seconds[i] / samples.bandwidth[i]; });
  };
  const auto gain = static_cast<double>(batch);
  GenerationSpeed speed;
  speed.read_bytes_per_second = median(samples.bandwidth);
  speed.decoding = {{"fp32", 1, median(steps[0]), fp32.bytes(1)},
                    {"fp32", batch, median(steps[1]), fp32.bytes(batch)},
                    {"bf16", 1, median(steps[2]), bf16.bytes(1)},
                    {"bf16", batch, median(steps[3]), bf16.bytes(batch)}};
  speed.share_of_bandwidth = share(steps[0], fp32.bytes(1));
  speed.share_of_bandwidth_bf16 = share(steps[2], bf16.bytes(1));
  speed.bf16_over_fp32 = samples.ratio(steps[0], steps[2]);
  speed.batch_over_one = gain * samples.ratio(steps[0], steps[1]);
  speed.batch_over_one_bf16 = gain * samples.ratio(steps[2], steps[3]);
  speed.prefill_tokens_per_second = median(samples.prefill);
  speed.training_tokens_per_second = median(samples.training);
  speed.prefill_over_training = samples.ratio(samples.prefill, samples.training);
  return speed;
}

std::string describe(const GenerationSpeed& speed, const DecodingPipeline& pipeline) {
  std::string text = fmt::format(
      "generate: GPT-2 124M, random weights, greedy, one core; a step is a token of each prompt\n"
      "  {:<12}{:>10}{:>12}{:>14}{:>26}\n",
      "precision", "prompts", "ms a step", "tokens/s", "GB/s of weights and cache");
  for (const DecodingSpeed& each : speed.decoding) {
    text += fmt::format("  {:<12}{:>10}{:>12.2f}{:>14.1f}{:>26.1f}\n", each.precision, each.batch, 1e3 * each.seconds,
                        each.tokens_per_second(), 1e-9 * each.bytes / each.seconds);
  }
  const std::int64_t batch = speed.decoding.back().batch;
  text += fmt::format("  a core reads     {:8.1f} GB/s; one prompt takes {:.1f} % of that in fp32, {:.1f} % in bf16\n",
                      1e-9 * speed.read_bytes_per_second, 100 * speed.share_of_bandwidth,
                      100 * speed.share_of_bandwidth_bf16);
  text += fmt::format("  bf16             {:8.2f} times the tokens per second of fp32\n", speed.bf16_over_fp32);
  text += fmt::format("  {:>2} prompts       {:8.1f} times those of one, in bf16 {:.1f}\n", batch, speed.batch_over_one,
                      speed.batch_over_one_bf16);
  text += fmt::format("  reading a prompt {:8.0f} tokens/s, {:.2f} times the forward of training ({:.0f})\n",
                      speed.prefill_tokens_per_second, speed.prefill_over_training, speed.training_tokens_per_second);
  return text + fmt::format(
                    "  bubble           {:8.1f} % of {} stages with {} groups of prompts, {} tokens each, whose "
                    "stages sleep; filling and draining {:.1f} %\n",
                    100 * pipeline.bubble, pipeline.stages, pipeline.groups, pipeline.tokens, 100 * pipeline.by_order);
}

std::string to_json(const GenerationSpeed& speed, const DecodingPipeline& pipeline) {
  nlohmann::json json{{"case", "generate"},
                      {"read_gigabytes_per_second", 1e-9 * speed.read_bytes_per_second},
                      {"share_of_bandwidth", speed.share_of_bandwidth},
                      {"share_of_bandwidth_bf16", speed.share_of_bandwidth_bf16},
                      {"bf16_over_fp32", speed.bf16_over_fp32},
                      {"batch_over_one", speed.batch_over_one},
                      {"batch_over_one_bf16", speed.batch_over_one_bf16},
                      {"prefill_tokens_per_second", speed.prefill_tokens_per_second},
                      {"training_forward_tokens_per_second", speed.training_tokens_per_second},
                      {"prefill_over_training", speed.prefill_over_training},
                      {"pipeline_stages", pipeline.stages},
                      {"pipeline_groups", pipeline.groups},
                      {"pipeline_bubble", pipeline.bubble},
                      {"pipeline_bubble_by_order", pipeline.by_order}};
  for (const DecodingSpeed& each : speed.decoding) {
    json["decoding"].push_back({{"precision", each.precision},
                                {"batch", each.batch},
                                {"step_seconds", each.seconds},
                                {"bytes_per_step", each.bytes},
                                {"tokens_per_second", each.tokens_per_second()}});
  }
  return json.dump() + '\n';
}

}  // namespace megatron
