#include "planning/dry_run/time_estimate.h"

#include <algorithm>
#include <cstring>

#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "base/core/stopwatch.h"
#include "distributed/process/cores.h"
#include "planning/dry_run/plan_text.h"
#include "training/step/code_path.h"

namespace megatron {

namespace {

constexpr double kMeasureSeconds = 0.03;          // for each speed
constexpr double kMostFlops = 4e9;                // in one product: tens of milliseconds on any core
constexpr std::int64_t kMostElements = 16 << 20;  // in a matrix
constexpr std::size_t kCopiedBytes = 16 << 20;    // more than a core's share of its caches

// Compared with runs of five models of 0.2 to 15 million parameters on one rank, with dropout and without: within 1.25.
constexpr double kBlockElements = 46, kMlpElements = 12;  // read and written a token and layer: times h, times f
constexpr double kHeadElements = 6;                       // a token, times the vocabulary
constexpr double kUpdateElements = 8;                     // a parameter: gradient, master, norm
constexpr double kStateElements = 2;                      // a number of the optimizer's states: read and written
constexpr double kAttentionSlowness = 2;                  // its small products, against large ones
constexpr double kDropoutSeconds = 1.2e-9;                // a number, forward and backward
constexpr double kTurns = 1.15;                           // ranks that take turns on a core, against ranks that do not

// Rate of `body`, which does `amount` of something, after a first time that is not counted. By the time for which this
// thread had a core: other processes are not the machine's speed.
template <class Body>
double rate_of(double amount, const Body& body) {
  body();
  double done = 0, seconds = 0;
  while (seconds < kMeasureSeconds) {
    seconds += time_of(body).cpu;
    done += amount;
  }
  return done / seconds;
}

/// FLOP/s of a product of a micro-batch's rows with a layer's largest weight, cut where they would take long.
double product_rate(const Config& config, const Backend& backend, DType type) {
  const ModelConfig& model = config.model;
  const std::int64_t h = std::min(model.hidden_size, kMostElements / 16);  // leaves room for 16 rows or more
  const std::int64_t f = std::clamp<std::int64_t>(kMostElements / h, 1, model.ffn_hidden_size / config.parallel.tensor);
  const double flops_of_row = 2.0 * static_cast<double>(h) * static_cast<double>(f);
  const std::int64_t rows =
      std::clamp<std::int64_t>(config.train.micro_batch_size * model.task_choices * model.sequence_length, 1,
                               std::max<std::int64_t>(16, std::llround(kMostFlops / flops_of_row)));
  const auto matrix = [&](std::int64_t high, std::int64_t wide) {
    return Buffer(*backend.device, static_cast<std::size_t>(high * wide) * size_of(type));
  };
  Buffer input = matrix(rows, h), weight = matrix(f, h), output = matrix(rows, f);
  const MatmulArgs product{.a = input.tensor({rows, h}, type),
                           .b = weight.tensor({f, h}, type),
                           .transpose_b = true,
                           .c = output.tensor({rows, f}, type)};
  backend.ops->fill(input.tensor({rows, h}, type), 0.5);
  backend.ops->fill(weight.tensor({f, h}, type), 0.25);
  return rate_of(flops_of_row * static_cast<double>(rows), [&] { backend.ops->matmul(product); });
}

}  // namespace

MachineSpeed measure_speed(const Config& config) {
  const int cores = std::max(1, static_cast<int>(cores_of_process("").of_host));
  const Backend backend = make_cpu_backend(std::min(cores, static_cast<int>(config.run.threads)),
                                           native_16bit_here(config.run.native_16bit_choice()));
  MachineSpeed speed;
  speed.flops_per_second = product_rate(config, backend, DType::f32);
  if (const DType type = config.precision.dtype(); type != DType::f32) {
    speed.half_flops_per_second = product_rate(config, backend, type);
  }
  const Buffer from(*backend.device, kCopiedBytes), to(*backend.device, kCopiedBytes);
  std::memset(from.data(), 1, kCopiedBytes);
  speed.bytes_per_second = rate_of(2.0 * kCopiedBytes, [&] {
    std::memcpy(to.data(), from.data(), kCopiedBytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // or the compiler would leave it out
  });
  return speed;
}

double work_seconds(const Config& config, const MemoryPlan& plan, const MachineSpeed& speed) {
  const ModelConfig& model = config.model;
  const ParallelConfig& parallel = config.parallel;
  const double samples = static_cast<double>(config.train.global_batch_size * model.task_choices) /
                         static_cast<double>(parallel.data);  // as many as columns
  const auto stages = static_cast<double>(parallel.pipeline);
  // Rows that go through a layer of one stage. A decoder's layer that sees an encoder has half as many parts again.
  const auto encoder_rows = static_cast<double>(model.layers * model.sequence_length);
  const auto decoder_rows = 1.5 * static_cast<double>(model.decoder_layers * model.decoder_sequence_length);
  const double rows = samples * (encoder_rows + decoder_rows) / stages;
  const double head_rows =
      samples * static_cast<double>(model.has_decoder() ? model.decoder_sequence_length : model.sequence_length);
  const auto tensor = static_cast<double>(parallel.tensor), h = static_cast<double>(model.hidden_size);
  const double f = static_cast<double>(model.ffn_hidden_size) / tensor;
  double elements = rows * (kBlockElements * h + kMlpElements * f);
  if (model.task_outputs == 0) {  // the head of a task has one row per column
    elements += head_rows * kHeadElements * static_cast<double>(model.padded_vocab()) / tensor / stages;
  }
  elements += kUpdateElements * static_cast<double>(plan.updated);
  elements += kStateElements * static_cast<double>(plan.updated_states);
  double numbers = 0;  // drawn for dropout
  if (model.hidden_dropout > 0) {
    numbers += (2 * rows + samples * static_cast<double>(model.sequence_length)) * h;
  }
  if (model.attention_dropout > 0) {
    numbers += rows * static_cast<double>(model.attention_heads * model.sequence_length) / 2 / tensor;
  }
  const double moved = plan.forward_and_backward_bytes + plan.gradient_bytes;
  return plan.matmul_flops / speed.product_flops_per_second() +
         (plan.update_flops + kAttentionSlowness * plan.attention_flops) / speed.flops_per_second +
         (4 * elements + 4 * moved) / speed.bytes_per_second +
         2 * numbers * kDropoutSeconds / static_cast<double>(config.run.threads);
}

double step_seconds(const Config& config, const std::vector<MemoryPlan>& stages, const MachineSpeed& speed,
                    int ranks_here, int cores) {
  double longest = 0, together = 0;
  for (const MemoryPlan& stage : stages) {
    const double work = work_seconds(config, stage, speed);
    longest = std::max(longest, work);
    together += work / static_cast<double>(stages.size());
  }
  const double threads = static_cast<double>(ranks_here * config.run.threads), turns = threads / cores;
  if (turns <= 1) return longest / (1 - bubble_fraction(config));
  return std::max(longest, together * turns * (ranks_here > 1 ? kTurns : 1));
}

}  // namespace megatron
