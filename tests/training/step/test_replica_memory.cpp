// A replica takes the memory that plan_memory promises: to the byte, on every rank.
#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "training/step/grid.h"
#include "training/step/memory_layout.h"
#include "training/step/metered_device.h"
#include "training/step/replica.h"
#include "training/step/sequence_scores.h"

using namespace megatron;
using namespace megatron::test;

namespace {

void to_tell_labels(ModelConfig& model) {
  like_bert(model);
  model.task_outputs = 3;
}

void to_tell_choices(ModelConfig& model) {
  like_megatron_bert(model);
  model.task_outputs = 1;
  model.task_choices = 3;
}

constexpr auto kMost = {RecomputePart::norms, RecomputePart::feed_forward};

/// Eight ranks, a schedule with delayed weight gradients and a divided optimizer state.
Layout split_every_way(void (*variant)(ModelConfig&), const char* task, int expert = 1) {
  return {.tensor = 2,
          .data = 2,
          .pipeline = 2,
          .sequence_parallel = true,
          .schedule = "zero_bubble",
          .share = "state",
          .variant = variant,
          .task = task,
          .expert = expert};
}

void to_tell_labels_with_experts(ModelConfig& model) {
  to_tell_labels(model);
  with_experts(model);
}

struct RankMemory {
  MemoryPlan plan;
  std::size_t weights = 0, gradients = 0, optimizer = 0, scratch = 0, kernels = 0, device = 0;
  ExecutorMemory passes;
  int blocks_before = 0, blocks_after = 0;
  std::size_t batch = 0;    // with an evaluation task's results; only where there are tasks
  int blocks_of_tasks = 0;  // while they were scored
  std::int64_t parameters = 0;
};

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

std::vector<RankMemory> measure(const Layout& layout) {
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
    memory.optimizer =
        replica.optimizer().state_bytes() +
        UpdateStep::bytes(family_of(config.model).loss_terms(config).size(),
                          static_cast<std::size_t>(config.model.expert_layers() * (config.model.moe.experts + 1)));
    for (const Parameter& parameter : replica.store().all()) memory.parameters += parameter.elements();
  });
  return ranks;
}

}  // namespace

TEST_CASE("plan_memory is what every rank really takes, to the byte") {
  const Layout layout = GENERATE(
      Layout{}, Layout{.micro_batch = 4}, Layout{.tensor = 2}, Layout{.tensor = 4, .sequence_parallel = true},
      Layout{.data = 2, .micro_batch = 2}, Layout{.pipeline = 2}, Layout{.pipeline = 4, .schedule = "gpipe"},
      Layout{.tensor = 2, .data = 2, .pipeline = 2}, Layout{.dropout = 0},
      Layout{.tensor = 2, .pipeline = 2, .micro_batch = 2, .sequence_parallel = true, .layers_per_stage = {1, 3}},
      Layout{.pipeline = 4, .layers_per_stage = {0, 3, 1, 0}},
      Layout{.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "interleaved", .virtual_stages = 2},
      Layout{.pipeline = 3, .schedule = "interleaved", .virtual_stages = 2, .layers_per_stage = {1, 0, 1, 1, 1, 0}},
      Layout{.pipeline = 4, .schedule = "zero_bubble"},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .dropout = 0},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .recompute = {"full", 1}},
      Layout{.micro_batch = 2, .recompute = {"full"}}, Layout{.micro_batch = 2, .recompute = {"full", 3}},
      Layout{.recompute = {"selective"}}, Layout{.micro_batch = 2, .recompute = {"selective", 0, kMost}},
      Layout{.tensor = 2, .sequence_parallel = true, .recompute = {"selective", 0, {RecomputePart::feed_forward}}},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .recompute = {"selective"}},
      Layout{.tensor = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .recompute = {"selective", 0, kMost}},
      Layout{.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .recompute = {"selective", 0, kMost}},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .recompute = {"full", 1}},
      Layout{.pipeline = 4, .schedule = "gpipe", .ramp_up = {1, 1, 10}},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .ramp_up = {2, 6, 5}},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}}},
      Layout{.pipeline = 3,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .layers_per_stage = {1, 0, 1, 1, 1, 0},
             .ramp_up = {1, 1, 10}},
      Layout{.optimizer = "muon"}, Layout{.tensor = 4, .optimizer = "muon", .variant = with_one_group},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .share = "state", .optimizer = "muon", .compute = "bf16"},
      Layout{.data = 4, .share = "state", .optimizer = "muon", .variant = with_experts, .expert = 2},
      Layout{.data = 2, .share = "state", .optimizer = "sgd"}, Layout{.optimizer = "sgd", .momentum = 0},
      Layout{.pipeline = 2, .groups = {group_with_rule({"*.bias", "layers.2.*"}, "sgd")}},
      Layout{.data = 4,
             .share = "state",
             .optimizer = "sgd",
             .momentum = 0,
             .groups = {group_with_rule({"*.mlp.*"}, "adamw")},
             .compute = "bf16"},
      Layout{.pipeline = 2, .moments = "bf16"},
      Layout{.tensor = 2, .data = 2, .share = "state", .compute = "bf16", .moments = "bf16"},
      Layout{.data = 4,
             .share = "state",
             .optimizer = "sgd",
             .momentum = 0,
             .groups = {group_with_rule({"*.mlp.*"}, "adamw")},
             .moments = "bf16"},
      Layout{.data = 4, .share = "state", .optimizer = "muon", .variant = with_experts, .expert = 2, .moments = "bf16"},
      Layout{.data = 2, .share = "state", .optimizer = "lion"}, Layout{.data = 4, .share = "state"},
      Layout{.data = 8, .pipeline = 2, .share = "state"}, Layout{.data = 1, .share = "gradients"},
      Layout{.data = 2, .share = "gradients"}, Layout{.data = 4, .share = "gradients", .compute = "bf16"},
      Layout{.data = 8, .share = "gradients", .variant = like_llama},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .share = "gradients"},
      Layout{.data = 4, .share = "gradients", .variant = with_experts, .expert = 2},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .share = "state"},
      Layout{.micro_batch = 4, .compute = "bf16"}, Layout{.tensor = 2, .recompute = {"full", 1}, .compute = "fp16"},
      Layout{.micro_batch = 2, .threads = 3},
      Layout{.data = 2,
             .micro_batch = 4,
             .share = "state",
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .compute = "bf16",
             .threads = 2},
      Layout{.micro_batch = 2, .variant = like_llama},
      Layout{.tensor = 4, .pipeline = 2, .sequence_parallel = true, .recompute = {"full", 1}, .variant = like_llama},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "zero_bubble", .variant = like_llama},
      Layout{.tensor = 4, .data = 2, .sequence_parallel = true, .share = "state", .variant = with_one_group},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .variant = with_one_group},
      Layout{.tensor = 4, .recompute = {"full", 3}, .variant = with_normed_heads},
      Layout{.tensor = 2, .recompute = {"selective"}, .variant = with_normed_heads},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "zero_bubble", .compute = "bf16", .variant = with_normed_heads},
      Layout{.micro_batch = 2, .variant = with_window},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .variant = with_window},
      Layout{.micro_batch = 2, .variant = with_parallel_parts},
      Layout{.tensor = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .recompute = {"full", 1},
             .variant = with_parallel_parts},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .dropout = 0, .compute = "bf16", .variant = with_parallel_parts},
      Layout{.micro_batch = 2, .variant = like_bert}, Layout{.recompute = {"full", 3}, .variant = like_bert},
      Layout{.recompute = {"selective", 0, kMost}, .variant = like_bert},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .recompute = {"selective"}, .variant = like_megatron_bert},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .variant = like_bert},
      Layout{.micro_batch = 2, .variant = like_megatron_bert}, Layout{.micro_batch = 2, .variant = like_t5},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .variant = like_t5},
      Layout{.pipeline = 4, .recompute = {"full"}, .share = "state", .variant = like_t5},
      Layout{.pipeline = 2, .recompute = {"selective", 0, kMost}, .variant = like_t5},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .dropout = 0, .compute = "bf16", .variant = like_megatron_t5},
      Layout{.tensor = 4,
             .data = 1,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .variant = like_megatron_t5},
      Layout{
          .tensor = 4, .pipeline = 2, .sequence_parallel = true, .recompute = {"full"}, .variant = like_megatron_bert},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .dropout = 0, .compute = "bf16", .variant = like_megatron_bert},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .share = "state",
             .variant = like_megatron_bert},
      Layout{.micro_batch = 2, .variant = to_tell_labels, .task = "classification"},
      split_every_way(to_tell_labels, "classification"),
      Layout{.micro_batch = 2, .recompute = {"full"}, .variant = to_tell_choices, .task = "multiple_choice"},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .micro_batch = 2,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .compute = "bf16",
             .variant = to_tell_choices,
             .task = "multiple_choice"},
      Layout{.micro_batch = 2, .task = "instructions"},
      Layout{
          .tensor = 2, .data = 2, .pipeline = 2, .micro_batch = 2, .sequence_parallel = true, .task = "instructions"},
      Layout{.micro_batch = 2, .variant = with_experts},
      Layout{.micro_batch = 2, .compute = "bf16", .variant = with_balanced_experts},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .recompute = {"full", 1},
             .share = "state",
             .variant = with_balanced_experts,
             .expert = 2},
      split_every_way(with_experts, "", 2),
      Layout{.data = 4, .recompute = {"full"}, .compute = "bf16", .variant = with_experts, .expert = 4},
      Layout{.data = 2,
             .pipeline = 2,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .share = "state",
             .variant = with_experts,
             .expert = 2},
      Layout{.micro_batch = 2, .recompute = {"full"}, .variant = with_shared_experts},
      Layout{.micro_batch = 2, .recompute = {"selective"}, .variant = with_shared_experts},
      Layout{.data = 2,
             .pipeline = 2,
             .schedule = "zero_bubble",
             .recompute = {"selective", 0, kMost},
             .variant = with_residual_experts,
             .expert = 2},
      Layout{.data = 2, .recompute = {"selective"}, .variant = without_drops, .expert = 2},
      Layout{.recompute = {"selective", 0, kMost}, .variant = without_drops},
      Layout{.micro_batch = 2, .variant = without_drops},
      Layout{.micro_batch = 2, .variant = without_drops, .tasks = true},
      Layout{.tensor = 2, .sequence_parallel = true, .compute = "bf16", .variant = without_drops},
      split_every_way(with_shared_experts, "", 2),
      Layout{.micro_batch = 2, .compute = "bf16", .variant = with_residual_experts},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .dropout = 0,
             .variant = with_residual_experts,
             .expert = 2},
      Layout{.data = 2, .recompute = {"full"}, .variant = with_residual_experts, .expert = 2},
      split_every_way(without_drops, "", 2),
      Layout{.data = 4,
             .recompute = {"full"},
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .variant = without_drops,
             .expert = 4},
      Layout{.micro_batch = 2, .variant = with_experts, .tasks = true},
      Layout{.data = 2, .pipeline = 2, .compute = "bf16", .variant = with_experts, .tasks = true, .expert = 2},
      Layout{.micro_batch = 2, .variant = to_tell_labels_with_experts, .task = "classification"},
      split_every_way(to_tell_labels_with_experts, "classification", 2), Layout{.tasks = true},
      Layout{.micro_batch = 4, .recompute = {"full"}, .threads = 3, .tasks = true},
      Layout{.data = 2, .micro_batch = 2, .share = "state", .compute = "bf16", .tasks = true},
      Layout{
          .tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .tasks = true},
      Layout{.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .variant = like_llama, .tasks = true},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "gpipe", .ramp_up = {2, 6, 5}, .tasks = true},
      Layout{.context = 2, .exchange = "gathered"}, Layout{.micro_batch = 2, .compute = "bf16", .context = 4},
      Layout{.context = 2, .exchange = "ulysses"}, Layout{.dropout = 0, .context = 2, .exchange = "ring"},
      Layout{.micro_batch = 2, .variant = with_one_group, .context = 4, .exchange = "ulysses"},
      Layout{.micro_batch = 2,
             .recompute = {"full", 2},
             .compute = "bf16",
             .variant = with_normed_heads,
             .context = 2,
             .exchange = "ulysses"},
      Layout{.pipeline = 2,
             .micro_batch = 2,
             .schedule = "zero_bubble",
             .dropout = 0,
             .compute = "bf16",
             .variant = like_llama,
             .context = 4,
             .exchange = "ring"},
      Layout{.tensor = 2,
             .sequence_parallel = true,
             .dropout = 0,
             .recompute = {"full"},
             .variant = like_bert,
             .context = 2,
             .exchange = "ring"},
      Layout{.tensor = 2, .sequence_parallel = true, .variant = with_one_group, .context = 2},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .variant = with_normed_heads, .context = 2},
      Layout{.data = 2, .recompute = {"full"}, .share = "state", .variant = like_llama, .context = 2},
      Layout{.tensor = 2,
             .micro_batch = 2,
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .threads = 2,
             .context = 2},
      Layout{.micro_batch = 2, .variant = like_bert, .context = 4},
      Layout{.micro_batch = 2, .variant = to_tell_labels, .task = "classification", .context = 2},
      Layout{.pipeline = 2, .recompute = {"full", 1}, .task = "instructions", .context = 2},
      Layout{.data = 2, .share = "gradients", .context = 2}, Layout{.variant = with_experts, .context = 2},
      Layout{.data = 2, .micro_batch = 2, .compute = "bf16", .variant = with_experts, .expert = 2, .context = 2},
      Layout{.tensor = 2,
             .data = 2,
             .sequence_parallel = true,
             .dropout = 0,
             .variant = with_shared_experts,
             .expert = 2,
             .context = 2,
             .exchange = "ring"},
      Layout{.pipeline = 2, .schedule = "zero_bubble", .dropout = 0, .variant = with_residual_experts, .context = 4},
      Layout{.recompute = {"full"}, .variant = with_experts, .context = 4, .exchange = "ulysses"},
      Layout{.tensor = 2, .micro_batch = 2, .sequence_parallel = true, .variant = without_drops, .context = 2},
      Layout{.variant = like_t5, .context = 2, .exchange = "gathered"},
      Layout{.tensor = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .dropout = 0,
             .variant = like_megatron_t5,
             .context = 2,
             .exchange = "ring"},
      Layout{.micro_batch = 2,
             .recompute = {"full"},
             .compute = "bf16",
             .variant = like_t5,
             .context = 2,
             .exchange = "ulysses"},
      Layout{.variant = with_head_chunks}, Layout{.micro_batch = 4, .compute = "bf16", .variant = with_head_chunks},
      Layout{.micro_batch = 2, .threads = 3, .variant = with_head_chunks, .tasks = true},
      Layout{.tensor = 2, .sequence_parallel = true, .variant = with_head_chunks, .context = 2},
      Layout{.tensor = 2,
             .sequence_parallel = true,
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .compute = "bf16",
             .variant = with_head_chunks},
      Layout{.data = 2,
             .pipeline = 2,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .share = "state",
             .variant = with_head_chunks},
      split_every_way(with_head_chunks, ""), split_every_way(bert_with_head_chunks, ""),
      Layout{.micro_batch = 2, .recompute = {"full"}, .compute = "fp16", .variant = bert_with_head_chunks},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "gpipe", .variant = t5_with_head_chunks});
  const std::vector<RankMemory> ranks = measure(layout);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CAPTURE(layout.tensor, layout.context, layout.exchange, layout.data, layout.pipeline, layout.micro_batch,
            layout.sequence_parallel, rank);
    const RankMemory& memory = ranks[rank];
    const MemoryPlan& plan = memory.plan;
    CHECK(plan.parameters == memory.parameters);
    CHECK(plan.weights == memory.weights);
    CHECK(plan.gradients == memory.gradients);
    CHECK(plan.optimizer == memory.optimizer);
    CHECK((plan.passes == memory.passes));
    CHECK(plan.scratch == memory.scratch);
    // The batch and the staging of MPI's reductions are their owners'.
    const std::size_t staging = plan.communication - ExecutorMemory::sum(plan.passes.gradient_buffers);
    CHECK(plan.kernels == memory.kernels);
    CHECK(memory.device == plan.total() - plan.batch - staging);
    CHECK(memory.blocks_after == memory.blocks_before);
    if (layout.tasks) CHECK(plan.batch == memory.batch);
    CHECK(memory.blocks_of_tasks == 0);
  }
}
