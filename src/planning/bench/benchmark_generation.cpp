#include "planning/bench/comparisons.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "inference/decoding/generate.h"
#include "planning/bench/training_job.h"

namespace megatron {

namespace {

/// A core's rate of reading memory that no cache holds, in bytes per second.
double read_bandwidth(const Buffer& numbers) {
  constexpr std::size_t lanes = 64;
  const auto* const x = reinterpret_cast<const float*>(numbers.data());
  volatile float kept = 0;  // the loop cannot be left out
  const Seconds seconds = time_of([&] {
    float sums[lanes] = {};
    for (std::size_t i = 0; i < numbers.bytes() / sizeof(float); i += lanes) {
#pragma omp simd
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += x[i + lane];
    }
    for (const float sum : sums) kept = kept + sum;
  });
  return static_cast<double>(numbers.bytes()) / seconds.wall;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t number, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(number), 0, 0}, 1);
    tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(vocab)));
  }
  return tokens;
}

/// Text of random weights in one precision.
class DecodingJob {
 public:
  DecodingJob(const GenerationCase& benchmark, DType type, Communicator& world)
      : benchmark_(benchmark),
        config_(training_config(benchmark.model, 1)),
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

/// Steps of a decoder at one precision with this number of prompts.
struct Decoding {
  const char* precision;
  DecodingJob& job;
  std::int64_t prompts;
  std::vector<double> seconds = {};  ///< by round, as all samples

  Row row() const {
    const double step = median(seconds), bytes = job.bytes(prompts);
    return {precision, prompts, step, static_cast<double>(prompts) / step, bytes / step, bytes};
  }
  double share(const std::vector<double>& bandwidth) const {
    std::vector<double> read;
    for (const double step : seconds) read.push_back(job.bytes(prompts) / step);
    return median_ratio(read, bandwidth);
  }
  /// Tokens per second over those of others.
  double speed_over(const Decoding& other) const {
    return static_cast<double>(prompts) / static_cast<double>(other.prompts) * median_ratio(other.seconds, seconds);
  }
};

}  // namespace

Report measure_generation(const GenerationCase& benchmark, const DecodingPipeline& pipeline, int rounds,
                          Communicator& world) {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  const Backend backend = make_cpu_backend();
  const Buffer numbers(*backend.device, bytes);
  backend.ops->fill(numbers.tensor({static_cast<std::int64_t>(bytes / sizeof(float))}, DType::f32), 1);
  DecodingJob fp32(benchmark, DType::f32, world), bf16(benchmark, DType::bf16, world);
  ModelConfig trained = benchmark.model;
  trained.sequence_length = benchmark.prefill;
  TrainingJob training(training_config(trained, 1), cpu_compute(), world);
  Decoding decodings[] = {
      {"fp32", fp32, 1}, {"fp32", fp32, benchmark.batch}, {"bf16", bf16, 1}, {"bf16", bf16, benchmark.batch}};
  std::vector<double> bandwidth, prefill, prefill_bf16, forward;
  for (int round = -1; round < rounds; ++round) {
    bandwidth.push_back(read_bandwidth(numbers));
    for (Decoding& each : decodings) each.seconds.push_back(each.job.step(each.prompts));
    prefill.push_back(fp32.prefill());
    prefill_bf16.push_back(bf16.prefill());
    training.run(1);
    forward.push_back(static_cast<double>(benchmark.prefill) / training.timers().seconds(Section::forward));
    if (round >= 0) continue;
    for (Decoding& each : decodings) each.seconds.clear();  // the first warms up
    for (std::vector<double>* samples : {&bandwidth, &prefill, &prefill_bf16, &forward}) samples->clear();
  }
  const auto& [one, batch, one_bf16, batch_bf16] = decodings;
  const std::string prompts = fmt::format("{} prompts", benchmark.batch), times = " times the tokens/s of ";
  Report report =
      list("generate", "GPT-2 124M, random weights, greedy, one core; a step is a token of each prompt",
           {{{"a core reads", "read_gigabytes_per_second", 1, 1, " GB/s"}, 1e-9 * median(bandwidth)},
            {{"one prompt takes", "share_of_bandwidth", 1, 100, " % of that in fp32"}, one.share(bandwidth)},
            {{"and in bf16", "share_of_bandwidth_bf16", 1, 100, " %"}, one_bf16.share(bandwidth)},
            {{"bf16", "bf16_over_fp32", 2, 1, times + "fp32"}, one_bf16.speed_over(one)},
            {{prompts, "batch_over_one", 1, 1, times + "one"}, batch.speed_over(one)},
            {{prompts + " in bf16", "batch_over_one_bf16", 1, 1, times + "one"}, batch_bf16.speed_over(one_bf16)},
            {{"and so", "batch_bf16_over_fp32", 2, 1, times + "fp32"}, batch_bf16.speed_over(batch)},
            {{"reading a prompt", "prefill_tokens_per_second", 0, 1, " tokens/s"}, median(prefill)},
            {{"and in bf16", "prefill_bf16_over_fp32", 2, 1, times + "fp32"}, median_ratio(prefill_bf16, prefill)},
            {{"forward of training", "training_forward_tokens_per_second", 0, 1, " tokens/s"}, median(forward)},
            {{"reading over training", "prefill_over_training", 2}, median_ratio(prefill, forward)},
            {{"pipeline", "pipeline_stages", 0, 1, " stages that sleep"}, pipeline.stages},
            {{"decodes", "pipeline_groups", 0, 1, fmt::format(" groups of prompts, {} tokens each", pipeline.tokens)},
             pipeline.groups},
            {{"bubble", "pipeline_bubble", 1, 100, " %"}, pipeline.bubble},
            {{"filling and draining", "pipeline_bubble_by_order", 1, 100, " %"}, pipeline.by_order}});
  const Report steps = table("", "",
                             {{"precision", "precision"},
                              {"prompts", "batch"},
                              {"ms a step", "step_seconds", 2, 1e3},
                              {"tokens/s", "tokens_per_second", 1},
                              {"GB/s of weights and cache", "", 1, 1e-9},
                              {"", "bytes_per_step"}},
                             {one.row(), batch.row(), one_bf16.row(), batch_bf16.row()});
  report.text += steps.text;
  report.rows[0]["decoding"] = steps.rows;
  return report;
}

}  // namespace megatron
