#include "bench/benchmark_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/resolve.h"
#include "plan/plan_text.h"
#include "train/grid.h"

namespace megatron {

namespace {

constexpr int kRanks = 8;

Config plain() {
  Config config;
  config.model.layers = 12;
  config.model.hidden_size = 768;
  config.model.attention_heads = 12;
  config.model.sequence_length = 1024;
  config.model.vocab_size = 50257;
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.train.micro_batch_size = 4;
  config.train.global_batch_size = 64;
  config.train.steps = 1000;
  config.data.train = "none";  // rules want a name; nothing is read
  return config;
}

MemoryCase plan(const std::string& option, Config config) {
  resolve(config, kRanks, nullptr);
  const std::vector<MemoryPlan> stages = plan_stages(config, grid_shape(config));
  const auto most = std::max_element(stages.begin(), stages.end(),
                                     [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
  return {option, *most};
}

}  // namespace

std::vector<MemoryCase> memory_cases() {
  struct Option {
    const char* name;
    void (*apply)(Config&);
  };
  const Option options[] = {
      {"none", [](Config&) {}},
      {"sequence_parallel", [](Config& c) { c.parallel.sequence_parallel = true; }},
      {"recompute selective", [](Config& c) { c.recompute.mode = "selective"; }},
      {"recompute full, 3 of 6 layers", [](Config& c) { c.recompute = {.mode = "full", .layers = 3}; }},
      {"recompute full", [](Config& c) { c.recompute.mode = "full"; }},
      {"bf16", [](Config& c) { c.precision.compute = "bf16"; }},
      {"distributed optimizer", [](Config& c) { c.optimizer.distributed = true; }},
      {"micro-batches of 1", [](Config& c) { c.train.micro_batch_size = 1; }},
      {"the guide's together",
       [](Config& c) {
         c.parallel.sequence_parallel = c.optimizer.distributed = true;
         c.recompute.mode = "selective";
         c.precision.compute = "bf16";
       }},
      {"the same, recompute full",
       [](Config& c) {
         c.parallel.sequence_parallel = c.optimizer.distributed = true;
         c.recompute.mode = "full";
         c.precision.compute = "bf16";
       }},
  };
  std::vector<MemoryCase> cases;
  for (const Option& option : options) {
    Config config = plain();
    option.apply(config);
    cases.push_back(plan(option.name, config));
  }
  for (const ScheduleFacts& schedule : kSchedules) {
    if (schedule.name == ParallelConfig().schedule) continue;
    Config config = plain();
    config.parallel.schedule = schedule.name;
    if (schedule.chunks) config.parallel.virtual_stages = 3;
    cases.push_back(plan(std::string(schedule.name) + (schedule.chunks ? ", 3 chunks" : ""), config));
  }
  return cases;
}

std::string describe(const std::vector<MemoryCase>& cases) {
  std::string text =
      "memory of the fullest rank, MiB: GPT-2 124M, 4 x 1024 tokens per micro-batch, 8 of them, tensor 2, pipeline 2, "
      "data "
      "2\n";
  text +=
      fmt::format("  {:<30}{:>9}{:>10}{:>10}{:>12}{:>14}{:>8}{:>8}{:>7}{:>8}{:>8}\n", "option", "weights", "gradients",
                  "optimizer", "activations", "communication", "scratch", "kernels", "batch", "total", "");
  const auto mebibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const MemoryCase& line : cases) {
    const MemoryPlan& plan = line.plan;
    const double share = static_cast<double>(plan.total()) / static_cast<double>(cases.front().plan.total());
    text +=
        fmt::format("  {:<30}{:>9.1f}{:>10.1f}{:>10.1f}{:>12.1f}{:>14.1f}{:>8.1f}{:>8.1f}{:>7.1f}{:>8.0f}{:>6.0f} %\n",
                    line.option, mebibytes(plan.weights), mebibytes(plan.gradients), mebibytes(plan.optimizer),
                    mebibytes(plan.activations), mebibytes(plan.communication), mebibytes(plan.scratch),
                    mebibytes(plan.kernels), mebibytes(plan.batch), mebibytes(plan.total()), 100 * share);
  }
  return text;
}

std::string to_json(const MemoryCase& benchmark) {
  const MemoryPlan& plan = benchmark.plan;
  return nlohmann::json{{"case", "memory"},
                        {"option", benchmark.option},
                        {"weights", plan.weights},
                        {"gradients", plan.gradients},
                        {"optimizer", plan.optimizer},
                        {"activations", plan.activations},
                        {"communication", plan.communication},
                        {"scratch", plan.scratch},
                        {"kernels", plan.kernels},
                        {"batch", plan.batch},
                        {"total", plan.total()}}
             .dump() +
         '\n';
}

}  // namespace megatron
