#include "training/step/measured_memory.h"

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "training/step/grid.h"
#include "training/step/metered_device.h"
#include "training/step/sequence_scores.h"

namespace megatron::test {

namespace {

/// Scores sequences of an evaluation task with the memory that the trainer has for it.
void score_sequences(const Config& config, const ProcessGrid& grid, Backend& backend, const MeteredDevice& device,
                     Replica& replica, RankMemory& memory) {
  const std::size_t before = device.bytes();
  const std::int64_t micro_batches = micro_batches_per_step(config);
  const BatchBuffer buffer(batch_layout(config), micro_batches, *backend.device);
  buffer.write_row_numbers(
      [&](void* to, const void* values, std::size_t bytes) { backend.device->copy_to_device(to, values, bytes); });
  SequenceScores scores(grid, *backend.device,
                        {.buffer = &buffer,
                         .micro_batches = micro_batches,
                         .row_unit = config.parallel.sequence_parallel ? config.parallel.tensor : 1});
  memory.batch = device.bytes() - before;
  const int blocks = device.blocks();
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<ScoredSequence> sequences;
  for (std::int64_t i = 0; i < 40; ++i) {  // lengths of the whole context, of two tokens, and between
    texts.emplace_back(static_cast<std::size_t>(2 + i * 7 % config.model.sequence_length), 5);
  }
  for (const auto& text : texts) sequences.push_back({text, 1});
  Timers timers;
  const auto play = [&](std::span<const MicroBatch> passes, std::span<const TargetResults> results) {
    replica.score(passes, results, timers);
  };
  internal_check(scores.score(sequences, play, [](std::int64_t) { return true; }).has_value(), "no scores");
  memory.blocks_of_tasks = device.blocks() - blocks;
  internal_check(replica.scratch_high_water() == memory.scratch, "a task took more scratch than training");
}

}  // namespace

std::vector<RankMemory> measure_memory(const Layout& layout) {
  const Config config = config_of(layout);
  const GridShape shape = grid_shape(config);
  std::vector<RankMemory> ranks(static_cast<std::size_t>(shape.ranks()));
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    RankMemory& memory = ranks[static_cast<std::size_t>(world.rank())];
    const ProcessGrid grid(world, shape);
    auto metered = std::make_unique<MeteredDevice>(make_cpu_backend().device);
    const MeteredDevice& device = *metered;
    auto ops = std::make_unique<CpuOps>(*metered, static_cast<int>(layout.threads));
    Backend backend(std::move(metered), std::move(ops));
    Replica replica(config, grid, backend);
    memory.plan = plan_memory(config, shape, grid.at());
    memory.device = device.bytes();
    memory.blocks_before = device.blocks();

    TinyBatches batches(config, grid.data().rank(), grid.context().rank());
    Config whole = config;
    whole.train.batch_ramp_up = {};
    whole.train.curriculum = {};
    TinyBatches whole_batches(whole, grid.data().rank(), grid.context().rank());
    Timers timers;
    for (int step = 1; step <= 2 || batches.targets() < whole_batches.targets(); ++step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      const StepSums sums = replica.forward_backward(micro_batches, step, batches.loss(), timers);
      replica.update(sums, {.learning_rate = 1e-3, .weight_decay = config.optimizer.weight_decay}, timers);
      memory.scratch = replica.scratch_high_water();
      const std::span<const MicroBatch> whole_batch = whole_batches.step(step);
      replica.evaluate(whole_batch, whole_batches.loss().counts, timers);
    }
    memory.blocks_after = device.blocks();
    if (layout.tasks) score_sequences(config, grid, backend, device, replica, memory);
    memory.passes = replica.passes_used();
    memory.kernels = replica.used().kernels;
    internal_check(replica.scratch_high_water() == memory.scratch, "evaluation took more scratch than training");
    memory.weights = replica.store().values().bytes() + replica.store().constant_bytes();
    memory.gradients = replica.store().gradients().bytes();
    memory.file = replica.optimizer().offloaded_bytes();
    memory.optimizer =
        replica.optimizer().state_bytes() +
        UpdateStep::bytes(family_of(config.model).loss_terms(config).size(),
                          static_cast<std::size_t>(config.model.expert_layers() * (config.model.moe.experts + 1)));
    for (const Parameter& parameter : replica.store().all()) memory.parameters += parameter.elements();
  });
  return ranks;
}

}  // namespace megatron::test
