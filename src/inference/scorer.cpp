#include "inference/scorer.h"

#include <cmath>

#include "comm/counting_communicator.h"
#include "config/resolve.h"
#include "inference/inference_model.h"
#include "inference/load_weights.h"
#include "train/compute.h"
#include "train/family_samples.h"

namespace megatron {

namespace {

// Of a pass: enough that the pipeline's bubble is small.
std::int64_t micro_batches_together(const GridShape& shape) {
  return shape.pipeline == 1 ? 4 : 16 * shape.pipeline;
}

// Of one sequence each in its columns, without documents.
BatchLayout scored_batch(const Config& config, std::int64_t longest) {
  BatchLayout layout = batch_layout(config).without(&Rows::weights);
  layout.sizes.rows = {longest};
  return layout;
}

PassSettings settings_of(const Config& config, Tensor loss_sums, std::span<const TargetResults> results) {
  return {.training = false, .activation_type = config.precision.dtype(), .loss_sums = loss_sums, .results = results};
}

std::vector<Action> actions_of(const ProcessGrid& grid, std::int64_t micro_batches) {
  return forward_only(grid.at().pipeline, grid.shape().pipeline, static_cast<int>(micro_batches));
}

Tensor allocate_losses(const Config& config, Arena& scratch) {
  return scratch.allocate("loss sums", {static_cast<std::int64_t>(family_of(config.model).loss_terms(config).size())},
                          DType::f64);
}

struct ScoringPlan {
  MemoryUse use;
  ExecutorMemory passes;
  std::vector<StagingPlan> staging;  // of each of the grid's groups
};

ScoringPlan play(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                 TransportKind kind) {
  CountingCommunicator world(rank_of(at, shape), shape.ranks());
  CountingCommunicator transport(rank_of(at, shape), shape.ranks(), "world", kind == TransportKind::staged);
  const ProcessGrid grid(world, shape, &transport);
  const TensorRegion region(grid, false);
  ParameterStore store;
  const Stages chunks = make_stages(config, grid, region, store);
  store.allocate_sizing(config.precision.dtype());

  const BatchLayout layout = scored_batch(config, longest);
  const std::int64_t count = micro_batches_together(shape);
  Arena scratch("scratch"), batch("batch");
  const MicroBatch micro_batch = view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return batch.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
  const Tensor result = batch.allocate("results", {longest * layout.sizes.samples}, DType::f32);
  const std::vector<MicroBatch> micro_batches(static_cast<std::size_t>(count), micro_batch);
  const std::vector<TargetResults> results(micro_batches.size(), {result, result, result});

  ScoringPlan plan;
  const Tensor loss_sums = allocate_losses(config, scratch);
  const std::vector<Action> actions = actions_of(grid, count);
  const PipelineExecutor::Lists lists = {&actions};
  PipelineExecutor executor({chunks.front().get()}, grid, region, lists);
  const std::unique_ptr<CountingOps> ops = make_counting_ops(config.run);
  Timers timers;
  executor.run(actions, micro_batches, settings_of(config, loss_sums, results), *ops, scratch, timers);
  plan.passes = executor.memory_for(lists);
  plan.use.weights =
      static_cast<std::size_t>(store.flat_elements()) * size_of(config.precision.dtype()) + store.constant_bytes();
  plan.use.activations = ExecutorMemory::sum(plan.passes.slots);
  plan.use.batch = layout.bytes(count) + ScoringBatches::result_bytes(layout.sizes, count);
  plan.use.scratch = scratch.high_water();
  plan.use.kernels = ops->workspace_bytes();
  std::size_t staging = 0;
  for (Communicator* group : grid.groups()) {
    plan.staging.push_back(kind != TransportKind::nccl ? group->staging_plan() : StagingPlan{});
    staging += plan.staging.back().bytes();
  }
  (on_host_memory(config.run) ? plan.use.communication : plan.use.host) += staging;
  return plan;
}

}  // namespace

Config config_for_scoring(const CheckpointReader& checkpoint, const ScoringLayout& layout) {
  Config config = config_for_inference(checkpoint);
  verify(samples_of_family(config.model).of_tokens != nullptr, ErrorKind::configuration,
         "{}: a model of model.family = \"{}\" predicts no next tokens: it writes no text and scores none; "
         "megatron_checkpoint export makes a model of it that other programs read",
         checkpoint.path(), config.model.family);
  const std::int64_t model_ranks = layout.tensor * layout.pipeline;
  verify(layout.ranks % model_ranks == 0, ErrorKind::configuration,
         "{} ranks are no multiple of tensor {} × pipeline {} = {}", layout.ranks, layout.tensor, layout.pipeline,
         model_ranks);
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = 0;
  config.train = {};
  config.train.steps = 1;
  config.train.micro_batch_size = layout.micro_batch_size;
  config.train.global_batch_size = layout.micro_batch_size * (layout.ranks / model_ranks);
  config.learning_rate = {};
  config.optimizer = {};
  config.recompute = {.mode = "full"};  // a block keeps its input alone
  config.loss = {};
  config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = false;
  if (layout.precision != "checkpoint") config.precision.compute = layout.precision;
  config.run = {};
  resolve(config, layout.ranks, nullptr);
  return config;
}

MemoryUse plan_scoring(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                       TransportKind kind) {
  return play(config, shape, at, longest, kind).use;
}

Scorer::Scorer(const Config& config, const ProcessGrid& grid, Backend& backend, std::int64_t longest)
    : config_(config),
      grid_(grid),
      backend_(backend),
      region_(grid, false),
      chunks_(make_stages(config_, grid, region_, store_)),
      scratch_("scratch") {
  const ScoringPlan plan =
      play(config_, grid.shape(), grid.at(), longest, transport_of(*backend.device, grid.tensor()));
  Device& device = *backend.device;
  store_.allocate_values(device, config_.precision.dtype());
  executor_ = std::make_unique<PipelineExecutor>(PipelineExecutor::Chunks{chunks_.front().get()}, grid, region_,
                                                 plan.passes, device);
  const std::int64_t micro_batches = micro_batches_together(grid.shape());
  batch_ = BatchBuffer(scored_batch(config_, longest), micro_batches, device);
  batch_.write_row_numbers(
      [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); });
  scores_.emplace(grid, device, ScoringBatches{.buffer = &batch_, .micro_batches = micro_batches});
  scratch_memory_ = Buffer(device, plan.use.scratch);
  scratch_ = Arena("scratch", scratch_memory_);
  loss_sums_ = allocate_losses(config_, scratch_);
  for (std::size_t i = 0; i < plan.staging.size(); ++i) grid.groups()[i]->reserve_staging(plan.staging[i]);
  backend.ops->reserve(plan.use.kernels);
}

void Scorer::load(const CheckpointReader& checkpoint) {
  load_weights(grid_.world(), checkpoint, store_, backend_);
}

std::vector<TargetScore> Scorer::score(std::span<const ScoredSequence> sequences,
                                       const std::function<void(std::int64_t done)>& progress) {
  Timers timers;
  const auto play_pass = [&](std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results) {
    backend_.ops->fill(loss_sums_, 0);
    executor_->run(actions_of(grid_, static_cast<std::int64_t>(micro_batches.size())), micro_batches,
                   settings_of(config_, loss_sums_, results), *backend_.ops, scratch_, timers);
  };
  const std::optional<std::vector<TargetScore>> scores = scores_->score(sequences, play_pass, [&](std::int64_t done) {
    if (progress && done > 0) progress(done);
    return true;
  });
  if (progress) progress(static_cast<std::int64_t>(sequences.size()));
  for (const TargetScore& score : *scores) {
    verify(std::isfinite(score.log_probability), ErrorKind::numerics,
           "the model's loss is not a finite number for all tokens: its training has diverged, or numbers are too "
           "large for fp16; evaluate an older checkpoint, or in fp32 or bf16");
  }
  return *scores;
}

MemoryUse Scorer::used() const {
  MemoryUse used{.weights = store_.values().bytes() + store_.constant_bytes(),
                 .activations = ExecutorMemory::sum(executor_->used().slots),
                 .scratch = scratch_.high_water(),
                 .kernels = backend_.ops->workspace_bytes(),
                 .batch = batch_.bytes() + scores_->bytes()};
  std::size_t& staging = backend_.device->is_host_memory() ? used.communication : used.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return used;
}

}  // namespace megatron
