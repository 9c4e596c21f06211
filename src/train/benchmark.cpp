#include "train/benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>

#include "base/philox.h"
#include "config/resolve.h"
#include "model/flops.h"
#include "train/replica.h"

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

// The middle one; of an even number the upper of the two.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Seconds median(const std::vector<Seconds>& samples) {
  std::vector<double> wall, cpu;
  for (const Seconds& sample : samples) {
    wall.push_back(sample.wall);
    cpu.push_back(sample.cpu);
  }
  return {median(std::move(wall)), median(std::move(cpu))};
}

template <class Body>
Seconds time_of(const Body& body) {
  const Seconds start = Seconds::now();
  body();
  return Seconds::now() - start;
}

double minor_page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// The three products of every distinct weight matrix [out, in] of the model, on memory of their own.
class SgemmReference {
 public:
  SgemmReference(const ModelConfig& model, std::int64_t rows, Backend& backend) : ops_(*backend.ops) {
    const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size, vocab = model.padded_vocab();
    const std::int64_t narrow = std::max(h, f), wide = std::max(narrow * 3, vocab);
    input_ = operand(rows * narrow, backend);
    output_ = operand(rows * wide, backend);
    weight_ = operand(wide * narrow, backend);
    result_ = operand(std::max(rows, narrow) * wide, backend);
    const auto layers = static_cast<int>(model.layers);
    add(rows, 3 * h, h, layers);
    add(rows, h, h, layers);
    add(rows, f, h, layers);
    add(rows, h, f, layers);
    add(rows, vocab, h, 1);
  }

  /// Times every product once more (short ones a few times).
  void measure() {
    for (Product& product : products_) {
      const int calls = product.flops < 2e10 ? 3 : 1;
      for (int i = 0; i < calls; ++i) product.samples.push_back(time_of([&] { ops_.matmul(product.args); }));
    }
  }

  /// One step's worth of products at their median times.
  Seconds seconds() const {
    Seconds sum;
    for (const Product& product : products_) {
      const Seconds each = median(product.samples);
      sum = sum + Seconds{each.wall * product.count, each.cpu * product.count};
    }
    return sum;
  }
  double flops() const {
    double sum = 0;
    for (const Product& product : products_) sum += product.flops * product.count;
    return sum;
  }

 private:
  struct Product {
    MatmulArgs args;
    double flops;
    int count;  ///< in a step
    std::vector<Seconds> samples;
  };

  Buffer operand(std::int64_t elements, Backend& backend) {
    Buffer buffer(*backend.device, static_cast<std::size_t>(elements) * sizeof(float));
    ops_.normal({.y = buffer.tensor({1, elements}, DType::f32), .key = 1, .global_columns = elements});
    return buffer;
  }

  void add(std::int64_t rows, std::int64_t out, std::int64_t in, int count) {
    const Tensor x = input_.tensor({rows, in}, DType::f32), y = output_.tensor({rows, out}, DType::f32);
    const Tensor weight = weight_.tensor({out, in}, DType::f32);
    const double flops = 2 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
    const auto product = [&](MatmulArgs args, Shape shape) {
      args.c = result_.tensor(shape, DType::f32);
      products_.push_back({args, flops, count, {}});
    };
    product({.a = x, .b = weight, .transpose_b = true, .c = {}}, {rows, out});
    product({.a = y, .b = weight, .c = {}}, {rows, in});
    product({.a = y, .b = x, .transpose_a = true, .c = {}}, {out, in});
  }

  Ops& ops_;
  Buffer input_, output_, weight_, result_;
  std::vector<Product> products_;
};

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

/// Samples of the parts of a step by name; medians, most expensive first.
class PartSamples {
 public:
  void add(const std::string& name, double seconds, int calls) {
    Samples& part = parts_[name];
    part.seconds.push_back(seconds);
    part.calls = calls;
  }
  std::vector<BenchmarkPart> medians() const {
    std::vector<BenchmarkPart> result;
    for (const auto& [name, part] : parts_) result.push_back({name, median(part.seconds), part.calls});
    std::sort(result.begin(), result.end(),
              [](const BenchmarkPart& a, const BenchmarkPart& b) { return a.seconds > b.seconds; });
    return result;
  }

 private:
  struct Samples {
    std::vector<double> seconds;
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

std::string describe(const std::vector<BenchmarkPart>& parts, double step_seconds) {
  std::string text;
  for (const BenchmarkPart& part : parts) {
    if (part.seconds < 5e-4 * step_seconds) continue;
    text += fmt::format("    {:<24}{:>10.2f} ms {:>6.1f} %", part.name, 1e3 * part.seconds,
                        100 * part.seconds / step_seconds);
    text += part.calls > 0 ? fmt::format(" {:>6} {}\n", part.calls, part.calls == 1 ? "call" : "calls") : "\n";
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
  TimedOps* ops = nullptr;
  Backend backend = timed_cpu_backend(ops);
  const ProcessGrid grid(world, {});
  Replica replica(config, grid, backend);
  const RandomBatch batch(config, *backend.device);

  BenchmarkResult result;
  result.tokens = config.train.global_batch_size * config.model.sequence_length;
  const auto tokens = static_cast<double>(result.tokens);
  result.model_flops = flops_per_token(config.model, config.recompute).model * tokens;
  result.matmul_flops = replica.plan().matmul_flops;

  SgemmReference sgemm(config.model, result.tokens, backend);
  std::vector<Seconds> step_samples;
  std::vector<double> fault_samples;
  PartSamples sections, verbs;
  for (int step = 1; step <= warm_up + steps; ++step) {
    if (step > warm_up) sgemm.measure();
    ops->take();
    Timers timers;
    const double faults = minor_page_faults();
    const Seconds seconds = time_of([&] {
      replica.forward_backward(batch.micro_batches(), step, tokens, timers);
      replica.update(learning_rate, timers);
    });
    if (step <= warm_up) continue;
    fault_samples.push_back(minor_page_faults() - faults);
    step_samples.push_back(seconds);
    for (const Section section : {Section::forward, Section::backward, Section::optimizer, Section::other}) {
      sections.add(name_of(section), timers.seconds(section), 0);
    }
    for (const auto& [verb, cost] : ops->take()) verbs.add(verb, cost.seconds.wall, cost.calls);
  }
  result.step = median(step_samples);
  result.page_faults = median(fault_samples);
  result.sgemm = sgemm.seconds();
  result.sgemm_flops = sgemm.flops();
  result.sections = sections.medians();
  result.verbs = verbs.medians();
  return result;
}

std::string describe(const BenchmarkCase& benchmark, const BenchmarkResult& result) {
  const double step = result.step.wall;
  double matmul = 0;
  for (const BenchmarkPart& part : result.verbs) {
    if (part.name == "matmul") matmul = part.seconds;
  }
  std::string text = fmt::format("{}: {}\n", benchmark.name, benchmark.title);
  text += fmt::format("  step   {:>10.2f} ms ({:.2f} ms of CPU), {:.0f} tokens/s, {:.0f} page faults\n", 1e3 * step,
                      1e3 * result.step.cpu, static_cast<double>(result.tokens) / step, result.page_faults);
  text += fmt::format("  model  {:>10.2f} GFLOP/s\n", 1e-9 * result.model_flops / step);
  text += fmt::format("  sgemm  {:>10.2f} GFLOP/s at the model's shapes; {:.2f} inside the step\n",
                      1e-9 * result.sgemm_flops / result.sgemm.wall, 1e-9 * result.matmul_flops / matmul);
  text += fmt::format("  share  {:>10.1f} % of sgemm ({:.1f} % by CPU time)\n", 100 * result.share(&Seconds::wall),
                      100 * result.share(&Seconds::cpu));
  return text + "  sections of a step\n" + describe(result.sections, step) + "  verbs\n" + describe(result.verbs, step);
}

}  // namespace megatron
