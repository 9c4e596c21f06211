#include "train/benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>

#include "base/philox.h"
#include "config/resolve.h"
#include "model/flops.h"
#include "train/replica.h"
#include "train/sgemm_reference.h"
#include "train/timed_ops.h"

namespace megatron {

namespace {

Config case_config(ModelConfig model, std::int64_t batch) {
  Config config;
  config.model = model;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.train.micro_batch_size = config.train.global_batch_size = batch;
  config.train.steps = 1000;
  config.data.train = "pseudo-random tokens";  // rules want a name; nothing is read
  resolve(config, 1, nullptr);
  return config;
}

ModelConfig gpt2_124m(std::int64_t sequence) {
  ModelConfig model;
  model.layers = 12;
  model.hidden_size = 768;
  model.attention_heads = 12;
  model.sequence_length = sequence;
  model.max_position_embeddings = 1024;
  model.vocab_size = 50257;
  return model;
}

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 4;
  model.hidden_size = 256;
  model.attention_heads = 4;
  model.sequence_length = 256;
  model.vocab_size = 384;
  return model;
}

double minor_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// One micro-batch of pseudo-random tokens on the device.
class RandomBatch {
 public:
  RandomBatch(const Config& config, Device& device) {
    const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
    std::vector<std::int32_t> tokens, targets, position_ids, positions;
    for (std::int64_t i = 0; i < s * b; ++i) {
      const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), 0, 0, 0}, 1);
      const auto vocab = static_cast<std::uint32_t>(config.model.vocab_size);
      tokens.push_back(static_cast<std::int32_t>(words[0] % vocab));
      targets.push_back(static_cast<std::int32_t>(words[1] % vocab));
      position_ids.push_back(static_cast<std::int32_t>(i / b));
    }
    for (std::int64_t i = 0; i < s; ++i) positions.push_back(static_cast<std::int32_t>(i));
    memory_.reserve(4);
    batch_.tokens = upload(device, tokens, {s, b});
    batch_.targets = upload(device, targets, {s, b});
    batch_.position_ids = upload(device, position_ids, {s, b});
    batch_.positions = upload(device, positions, {s});
    batch_.sequence = s;
    batch_.samples = b;
    batch_.gradient_scale = 1 / static_cast<double>(s * b);
  }

  std::span<const MicroBatch> micro_batches() const { return {&batch_, 1}; }

 private:
  Tensor upload(Device& device, const std::vector<std::int32_t>& values, Shape shape) {
    memory_.emplace_back(device, values.size() * sizeof(std::int32_t));
    const Tensor tensor = memory_.back().tensor(shape, DType::i32);
    device.copy_to_device(tensor.data(), values.data(), tensor.bytes());
    return tensor;
  }

  std::vector<Buffer> memory_;
  MicroBatch batch_;
};

/// Samples of the parts of a step by name, and their medians.
class PartSamples {
 public:
  void add(const std::string& name, Seconds seconds, int calls) {
    Samples& part = parts_[name];
    part.seconds.push_back(seconds);
    part.calls = calls;
  }
  std::vector<BenchmarkPart> medians() const {
    std::vector<BenchmarkPart> result;
    for (const auto& [name, part] : parts_) result.push_back({name, median(part.seconds), part.calls, 0});
    return result;
  }

 private:
  struct Samples {
    std::vector<Seconds> seconds;
    int calls = 0;
  };
  std::map<std::string, Samples> parts_;
};

Backend timed_cpu_backend(TimedOps*& timed) {
  Backend backend = make_cpu_backend();
  auto ops = std::make_unique<TimedOps>(std::move(backend.ops));
  timed = ops.get();
  backend.ops = std::move(ops);
  return backend;
}

void count_flops(std::vector<BenchmarkPart>& verbs, const MemoryPlan& plan) {
  for (BenchmarkPart& verb : verbs) {
    if (verb.name == "matmul") verb.flops = plan.matmul_flops;
    // Of seven products of the scores' size, two are the forward's.
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

double gigaflops(double flops, double seconds) {
  return 1e-9 * flops / seconds;
}

/// One line a part, the most expensive first; parts below half a thousandth of the step are left out.
std::string table(std::string_view title, std::vector<BenchmarkPart> parts, double step) {
  std::sort(parts.begin(), parts.end(),
            [](const BenchmarkPart& a, const BenchmarkPart& b) { return a.seconds.wall > b.seconds.wall; });
  std::string text =
      fmt::format("  {:<38}{:>10}{:>10}{:>10}{:>8}{:>10}\n", title, "ms", "CPU ms", "% of step", "calls", "GFLOP/s");
  for (const BenchmarkPart& part : parts) {
    if (part.seconds.wall < 5e-4 * step) continue;
    text += fmt::format("    {:<36}{:>10.2f}{:>10.2f}{:>10.1f}{:>8}", part.name, 1e3 * part.seconds.wall,
                        1e3 * part.seconds.cpu, 100 * part.seconds.wall / step, part.calls);
    text += part.flops > 0 ? fmt::format("{:>10.1f}\n", gigaflops(part.flops, part.seconds.wall)) : "\n";
  }
  return text;
}

}  // namespace

std::vector<BenchmarkCase> benchmark_cases() {
  return {
      {"gpt2_124m_4x256", "GPT-2 124M, batch 4 x 256", case_config(gpt2_124m(256), 4), 7},
      {"gpt2_124m_1x1024", "GPT-2 124M, batch 1 x 1024", case_config(gpt2_124m(1024), 1), 7},
      {"small_8x256", "4 layers of hidden size 256, vocabulary 384, batch 8 x 256", case_config(small_model(), 8), 21}};
}

BenchmarkResult run_benchmark(const BenchmarkCase& benchmark, int steps, Communicator& world) {
  constexpr int warm_up = 2;
  constexpr double learning_rate = 1e-4;
  const Config& config = benchmark.config;
  const std::int64_t tokens = config.train.global_batch_size * config.model.sequence_length;
  TimedOps* ops = nullptr;
  Backend backend = timed_cpu_backend(ops);
  const ProcessGrid grid(world, {});
  Replica replica(config, grid, backend);
  const RandomBatch batch(config, *backend.device);
  SgemmReference sgemm(config.model, tokens, backend);

  BenchmarkResult result;
  result.tokens = static_cast<double>(tokens);
  result.model_flops = flops_per_token(config.model, config.recompute).model * result.tokens;
  std::vector<Seconds> step_samples;
  std::vector<double> fault_samples;
  PartSamples sections, verbs;
  for (int step = 1; step <= warm_up + steps; ++step) {
    if (step > warm_up) sgemm.measure();
    ops->take();
    Timers timers;
    const double faults = minor_page_faults();
    const Seconds seconds = time_of([&] {
      replica.forward_backward(batch.micro_batches(), step, result.tokens, timers);
      replica.update(learning_rate, timers);
    });
    if (step <= warm_up) continue;
    fault_samples.push_back(minor_page_faults() - faults);
    step_samples.push_back(seconds);
    for (const Section section : {Section::forward, Section::backward, Section::optimizer, Section::other}) {
      sections.add(name_of(section), {.wall = timers.seconds(section)}, 0);
    }
    for (const auto& [verb, cost] : ops->take()) verbs.add(verb, cost.seconds, cost.calls);
  }
  result.step = median(step_samples);
  result.page_faults = median(fault_samples);
  result.sgemm = sgemm.seconds();
  result.sgemm_flops = sgemm.flops();
  result.sections = sections.medians();
  result.verbs = verbs.medians();
  count_flops(result.verbs, replica.plan());
  result.products = parts_of(sgemm);
  return result;
}

std::string describe(const BenchmarkCase& benchmark, const BenchmarkResult& result) {
  const Seconds step = result.step;
  std::string text = fmt::format("{}: {}\n", benchmark.name, benchmark.title);
  text += fmt::format("  share of sgemm {:8.1f} %   ({:.1f} % by CPU time)\n", 100 * result.share(&Seconds::wall),
                      100 * result.share(&Seconds::cpu));
  text += fmt::format("  model          {:8.1f} GFLOP/s\n", gigaflops(result.model_flops, step.wall));
  text += fmt::format("  sgemm          {:8.1f} GFLOP/s at the model's shapes\n",
                      gigaflops(result.sgemm_flops, result.sgemm.wall));
  text += fmt::format("  tokens         {:8.0f} a second\n", result.tokens / step.wall);
  text += fmt::format("  step           {:8.1f} ms ({:.1f} ms of CPU, {:.0f} page faults):", 1e3 * step.wall,
                      1e3 * step.cpu, result.page_faults);
  for (const BenchmarkPart& section : result.sections) {
    text += fmt::format(" {} {:.1f}", section.name, 1e3 * section.seconds.wall);
  }
  return text + '\n' + table("a step by operations", result.verbs, step.wall) +
         table("products alone", result.products, step.wall);
}

}  // namespace megatron
