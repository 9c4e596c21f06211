// What plan_memory promises is what a replica takes: to the byte, on every rank; and once the first steps are done, a
// step allocates nothing.
#include <catch2/catch.hpp>
#include <mutex>

#include "comm/thread_communicator.h"
#include "cpu/cpu_ops.h"
#include "model/flops.h"
#include "support/counted_allocations.h"
#include "support/tiny_training.h"
#include "train/grid.h"
#include "train/replica.h"
#include "train/sequence_scores.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A device that knows how much it has handed out.
class MeteredDevice final : public Device {
 public:
  explicit MeteredDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  std::size_t bytes() const { return bytes_; }
  int blocks() const { return blocks_; }

  void* allocate(std::size_t bytes) override {
    bytes_ += bytes;
    ++blocks_;
    return device_->allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override { device_->deallocate(memory, bytes); }
  std::string description() const override { return device_->description(); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    device_->copy_to_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { device_->copy_to_host(to, from, bytes); }
  void copy_within(void* to, const void* from, std::size_t bytes) override { device_->copy_within(to, from, bytes); }
  std::optional<std::size_t> free_bytes() const override { return device_->free_bytes(); }
  bool is_host_memory() const override { return device_->is_host_memory(); }
  Allocator& pinned() override { return device_->pinned(); }
  Ticket mark() override { return device_->mark(); }
  Ticket start_copy_to_host(void* to, const void* from, std::size_t bytes, Ticket after) override {
    return device_->start_copy_to_host(to, from, bytes, after);
  }
  Ticket start_copy_to_device(void* to, const void* from, std::size_t bytes, Ticket after) override {
    return device_->start_copy_to_device(to, from, bytes, after);
  }
  void order_after(Ticket ticket) override { device_->order_after(ticket); }
  bool complete(Ticket ticket) override { return device_->complete(ticket); }
  void wait(Ticket ticket) override { device_->wait(ticket); }
  void synchronize() override { device_->synchronize(); }

 private:
  std::unique_ptr<Device> device_;
  std::size_t bytes_ = 0;
  int blocks_ = 0;
};

struct Layout {
  int tensor = 1, data = 1, pipeline = 1;
  std::int64_t micro_batch = 1;
  bool sequence_parallel = false;
  const char* schedule = "1f1b";
  std::int64_t virtual_stages = 1;
  std::vector<std::int64_t> layers_per_stage = {};
  double dropout = 0.1;
  RecomputeConfig recompute = {};
  BatchRampUp ramp_up = {};
  bool distributed = false;
  Curriculum curriculum = {};
  const char* optimizer = "adamw";
  double momentum = 0.9;
  const char* compute = "fp32";
  std::int64_t threads = 1;
  void (*variant)(ModelConfig&) = [](ModelConfig&) {};
  bool tasks = false;  ///< of evaluation, inside training
  const char* task = "";
  int expert = 1;
};

void to_tell_labels(ModelConfig& model) {
  like_bert(model);
  model.task_outputs = 3;
}

void to_tell_choices(ModelConfig& model) {
  like_megatron_bert(model);
  model.task_outputs = 1;
  model.task_choices = 3;
}

void without_drops(ModelConfig& model) {
  with_experts(model);
  model.moe.every = 1;
  model.moe.drop = "none";
  model.moe.buffer = 1;
  model.moe.evaluation_capacity_factor = 0;
}

Config config_of(const Layout& layout) {
  Config config = tiny_config();
  config.parallel.tensor = layout.tensor;
  config.parallel.data = layout.data;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.expert = layout.expert;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  config.parallel.schedule = layout.schedule;
  config.parallel.virtual_stages = layout.virtual_stages;
  config.parallel.layers_per_stage = layout.layers_per_stage;
  config.train.micro_batch_size = layout.micro_batch;
  config.recompute = layout.recompute;
  config.train.batch_ramp_up = layout.ramp_up;
  config.optimizer.distributed = layout.distributed;
  config.train.curriculum = layout.curriculum;
  config.optimizer.name = layout.optimizer;
  config.optimizer.momentum = layout.momentum;
  config.precision.compute = layout.compute;
  config.run.threads = layout.threads;
  config.model.hidden_dropout = config.model.attention_dropout = layout.dropout;
  layout.variant(config.model);
  config.task.name = layout.task;
  if (layout.tasks) config.evaluation.tasks = {{.name = "words", .task = "lambada", .data = "words.jsonl"}};
  return config;
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
  for (std::int64_t i = 0; i < 40; ++i) {  // of the whole context, of two tokens, and between
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

    TinyBatches batches(config, grid.data().rank());
    Config whole = config;
    whole.train.batch_ramp_up = {};
    whole.train.curriculum = {};
    TinyBatches whole_batches(whole, grid.data().rank());
    Timers timers;
    for (int step = 1; step <= 2 || batches.targets() < whole_batches.targets(); ++step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      replica.forward_backward(micro_batches, step, batches.loss(), timers);
      replica.update({.learning_rate = 1e-3, .weight_decay = config.optimizer.weight_decay}, timers);
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
      Layout{.recompute = {"selective"}},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .recompute = {"full", 1}},
      Layout{.pipeline = 4, .schedule = "gpipe", .ramp_up = {1, 1, 10}},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .ramp_up = {2, 6, 5}},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}}},
      Layout{.pipeline = 3,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .layers_per_stage = {1, 0, 1, 1, 1, 0},
             .ramp_up = {1, 1, 10}},
      Layout{.data = 2, .distributed = true, .optimizer = "sgd"}, Layout{.optimizer = "sgd", .momentum = 0},
      Layout{.data = 4, .distributed = true}, Layout{.data = 8, .pipeline = 2, .distributed = true},
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .distributed = true},
      Layout{.micro_batch = 4, .compute = "bf16"}, Layout{.tensor = 2, .recompute = {"full", 1}, .compute = "fp16"},
      Layout{.micro_batch = 2, .threads = 3},
      Layout{.data = 2,
             .micro_batch = 4,
             .distributed = true,
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .compute = "bf16",
             .threads = 2},
      Layout{.micro_batch = 2, .variant = like_llama},
      Layout{.tensor = 4, .pipeline = 2, .sequence_parallel = true, .recompute = {"full", 1}, .variant = like_llama},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "zero_bubble", .variant = like_llama},
      Layout{.tensor = 4, .data = 2, .sequence_parallel = true, .distributed = true, .variant = with_one_group},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .variant = with_one_group},
      Layout{.tensor = 4, .recompute = {"full", 3}, .variant = with_normed_heads},
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
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .variant = like_bert},
      Layout{.micro_batch = 2, .variant = like_megatron_bert}, Layout{.micro_batch = 2, .variant = like_t5},
      Layout{.tensor = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .variant = like_t5},
      Layout{.pipeline = 4, .recompute = {"full"}, .distributed = true, .variant = like_t5},
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
             .distributed = true,
             .variant = like_megatron_bert},
      Layout{.micro_batch = 2, .variant = to_tell_labels, .task = "classification"},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .distributed = true,
             .variant = to_tell_labels,
             .task = "classification"},
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
             .distributed = true,
             .variant = with_balanced_experts,
             .expert = 2},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .distributed = true,
             .variant = with_experts,
             .expert = 2},
      Layout{.data = 4, .recompute = {"full"}, .compute = "bf16", .variant = with_experts, .expert = 4},
      Layout{.data = 2,
             .pipeline = 2,
             .schedule = "interleaved",
             .virtual_stages = 2,
             .distributed = true,
             .variant = with_experts,
             .expert = 2},
      Layout{.micro_batch = 2, .recompute = {"full"}, .variant = with_shared_experts},
      Layout{.micro_batch = 2, .variant = without_drops},
      Layout{.micro_batch = 2, .variant = without_drops, .tasks = true},
      Layout{.tensor = 2, .sequence_parallel = true, .compute = "bf16", .variant = without_drops},
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .distributed = true,
             .variant = with_shared_experts,
             .expert = 2},
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
      Layout{.tensor = 2,
             .data = 2,
             .pipeline = 2,
             .sequence_parallel = true,
             .schedule = "zero_bubble",
             .distributed = true,
             .variant = without_drops,
             .expert = 2},
      Layout{.data = 4,
             .recompute = {"full"},
             .curriculum = {"fixed_linear", 4, 3, 4, 2, {}, {}},
             .variant = without_drops,
             .expert = 4},
      Layout{.tasks = true}, Layout{.micro_batch = 4, .recompute = {"full"}, .threads = 3, .tasks = true},
      Layout{.data = 2, .micro_batch = 2, .distributed = true, .compute = "bf16", .tasks = true},
      Layout{
          .tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true, .schedule = "zero_bubble", .tasks = true},
      Layout{.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .variant = like_llama, .tasks = true},
      Layout{.tensor = 2, .pipeline = 2, .schedule = "gpipe", .ramp_up = {2, 6, 5}, .tasks = true});
  const std::vector<RankMemory> ranks = measure(layout);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CAPTURE(layout.tensor, layout.data, layout.pipeline, layout.micro_batch, layout.sequence_parallel, rank);
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

TEST_CASE("all data ranks of a stage hold the same, whatever each of them owns and sums") {
  const auto variant = GENERATE(like_llama, with_one_group, with_normed_heads);
  // Under sequence parallelism a learned table of positions is summed as well, by its owners alone.
  for (const bool learned : {false, true}) {
    Config config = config_of({.tensor = 4, .data = 3, .sequence_parallel = true, .distributed = true});
    variant(config.model);
    if (learned) config.model.position_embedding = "learned";
    config.train.global_batch_size = 6;
    const auto held = [&](int data) {
      return static_cast<MemoryUse>(plan_memory(config, grid_shape(config), {.data = data}));
    };
    CHECK(held(1) == held(0));
    CHECK(held(2) == held(0));
  }
}

TEST_CASE("a recomputed layer keeps its input in the slot, and one at a time is computed again in scratch") {
  const auto plan = [](RecomputeConfig recompute) {
    return plan_memory(config_of({.micro_batch = 2, .recompute = recompute}), {}, {});
  };
  const Config config = config_of({});
  const std::size_t rows = 16 * 2, h = 32, bytes = sizeof(float);
  // What a layer saves in addition to its output (the next one's input): two norms with their statistics, the residual
  // stream in the middle, query, key and value, attention's output and statistics, up and activated.
  const std::size_t layer = bytes * rows * (3 * h + 4 + 3 * h + h + 4 + 2 * 4 * h);
  const MemoryPlan none = plan({});
  for (std::int64_t layers = 1; layers <= 5; ++layers) {
    const MemoryPlan some = plan({"full", layers});
    const auto recomputed = static_cast<std::size_t>(std::min<std::int64_t>(layers, config.model.layers));
    CHECK(none.passes.slots.at(0) - some.passes.slots.at(0) == recomputed * layer);
    CHECK(some.scratch == none.scratch + layer);
    // The repeated products are those of the FLOPs that metrics report.
    const double tokens = 8.0 * 16;
    const double repeated = flops_per_token(config.model, static_cast<std::int64_t>(recomputed)).hardware -
                            flops_per_token(config.model).model;
    CHECK(some.matmul_flops + some.attention_flops - none.matmul_flops - none.attention_flops ==
          Approx(tokens * repeated));
  }
  CHECK((plan({"full"}).passes == plan({"full", 4}).passes));
  CHECK((plan({"selective"}).passes == none.passes));
}

TEST_CASE("sequence parallel: what is saved outside of the tensor region shrinks by the tensor size, all of it") {
  const auto slot = [](int tensor, bool sequence_parallel) {
    const Config config =
        config_of({.tensor = tensor, .micro_batch = 4, .sequence_parallel = sequence_parallel, .dropout = 0.1});
    return plan_memory(config, {.tensor = tensor}, {}).passes.slots.at(0);
  };
  const std::size_t rows = 16 * 4, h = 32, layers = 4, vocab = 64, bytes = sizeof(float);
  // Inside, of a layer: query, key and value, attention's output and statistics of four heads, up and activated; of the
  // head: logits, and of each row over all columns the maximum, the sum and the target's logit.
  const auto inside = [&](std::size_t t) {
    return bytes * rows * (layers * (3 * h + h + 4 + 2 * 4 * h) / t + vocab / t + 3);
  };
  // Outside, of a layer: two norms with their statistics, the residual stream in the middle and at the end; before the
  // first the embedding, after the last a norm.
  const std::size_t outside = bytes * rows * (layers * (2 * (h + 2) + 2 * h) + h + h + 2);
  for (const int tensor : {2, 4}) {
    CAPTURE(tensor);
    const auto t = static_cast<std::size_t>(tensor);
    CHECK(slot(tensor, false) == inside(t) + outside);
    CHECK(slot(tensor, true) == inside(t) + outside / t);
  }
}

TEST_CASE("slots in flight are the schedule's") {
  const auto slots = [](const char* schedule, int pipeline, int stage) {
    const Config config = config_of({.pipeline = pipeline, .schedule = schedule});
    return plan_memory(config, grid_shape(config), {.pipeline = stage}).slots();
  };
  CHECK(slots("gpipe", 4, 0) == 8);
  CHECK(slots("1f1b", 4, 0) == 4);
  CHECK(slots("1f1b", 4, 3) == 1);
  for (int stage = 0; stage < 4; ++stage) CHECK(slots("zero_bubble", 4, stage) == 4);
}

TEST_CASE("only the last stage's slots for the model's end have room for logits") {
  const Config config = config_of({.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2});
  const MemoryPlan last = plan_memory(config, grid_shape(config), {.pipeline = 1});
  const std::size_t logits = sizeof(float) * 16 * 64;
  REQUIRE(last.slots() == 4);  // two to warm up, one more, and the one apart
  CHECK(last.passes.slots[0] >= last.passes.slots[1] + logits);
  CHECK(last.passes.slots[1] == last.passes.slots[2]);
  // A gradient of [s, b, h] is sent while the next is made.
  const std::size_t link = sizeof(float) * 16 * 32;
  CHECK(last.passes.gradient_buffers == std::vector<std::size_t>{link, link});
  const MemoryPlan first = plan_memory(config, grid_shape(config), {});
  CHECK(first.passes.gradient_buffers == std::vector<std::size_t>{link, link});  // its chunk 1 has a previous one
  const Config plain = config_of({.pipeline = 2});
  CHECK(plan_memory(plain, grid_shape(plain), {}).passes.gradient_buffers.empty());
}

TEST_CASE("a steady step allocates nothing") {
  for (const Layout& layout :
       {Layout{}, Layout{.micro_batch = 4}, Layout{.micro_batch = 2, .schedule = "gpipe"},
        Layout{.schedule = "zero_bubble"}, Layout{.schedule = "zero_bubble", .dropout = 0}, Layout{.dropout = 0},
        Layout{.micro_batch = 2, .recompute = {"full", 3}},
        Layout{.schedule = "gpipe", .ramp_up = {2, 2, 8}},  // batches of 2 2 4 8 8
        Layout{.curriculum = {"fixed_discrete", 0, 0, 1, 1, {3, 9, 16}, {2, 3}}},
        Layout{.micro_batch = 2, .variant = like_llama}, Layout{.schedule = "zero_bubble", .variant = with_one_group},
        Layout{.recompute = {"full", 3}, .variant = with_normed_heads}, Layout{.variant = like_bert},
        Layout{.schedule = "zero_bubble", .dropout = 0, .variant = like_megatron_bert},
        Layout{.micro_batch = 2, .variant = without_drops},
        Layout{.recompute = {"full", 3}, .variant = without_drops}}) {
    CAPTURE(layout.micro_batch, layout.schedule, layout.dropout, layout.ramp_up.start);
    const Config config = config_of(layout);
    std::vector<long> by_step;
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      Replica replica(config, grid, backend);
      TinyBatches batches(config, 0);
      Timers timers;
      by_step.reserve(5);
      for (int step = 1; step <= 5; ++step) {
        const std::span<const MicroBatch> micro_batches = batches.step(step);
        const long before = allocations_of_mine();
        replica.forward_backward(micro_batches, step, batches.loss(), timers);
        replica.update({.learning_rate = 1e-3, .weight_decay = config.optimizer.weight_decay}, timers);
        by_step.push_back(allocations_of_mine() - before);
      }
    });
    CHECK(by_step[2] == 0);
    CHECK(by_step[3] == 0);
    CHECK(by_step[4] == 0);
  }
  // And the counter counts.
  const long before = allocations_of_mine();
  const Backend backend = make_cpu_backend();
  const long after = allocations_of_mine();
  CHECK(after > before);
}
