#include "inference/decoding/forward_passes.h"

#include "config/rules/resolve.h"
#include "distributed/comm/counting_communicator.h"
#include "inference/decoding/inference_model.h"
#include "inference/decoding/load_weights.h"

namespace megatron {

std::int64_t micro_batches_together(const GridShape& shape) {
  return shape.pipeline == 1 ? 4 : 16 * shape.pipeline;
}

namespace {

PassSettings settings_of(const Config& config, Tensor loss_sums, std::span<const TargetResults> results) {
  return {.training = false,
          .activation_type = config.precision.dtype(),
          .loss_sums = loss_sums,
          .results = results,
          .experts_take_all = true};
}

std::vector<Action> actions_of(const ProcessGrid& grid, std::int64_t micro_batches) {
  return forward_only(grid.at().pipeline, grid.shape().pipeline, static_cast<int>(micro_batches));
}

Tensor allocate_losses(const Config& config, Arena& scratch) {
  return scratch.allocate("loss sums", {static_cast<std::int64_t>(family_of(config.model).loss_terms(config).size())},
                          DType::f64);
}

struct PassPlan {
  MemoryUse use;
  ExecutorMemory passes;
  std::vector<StagingPlan> staging;  // for each of the grid's groups
};

PassPlan play_pass(const Config& config, const GridShape& shape, const GridCoordinates& at, const PassForm& form,
                   TransportKind kind) {
  CountingCommunicator world(rank_of(at, shape), shape.ranks());
  CountingCommunicator transport(rank_of(at, shape), shape.ranks(), "world", kind == TransportKind::staged);
  const ProcessGrid grid(world, shape, &transport);
  const TensorRegion region(grid, false);
  ParameterStore store;
  const Stages chunks = make_stages(config, grid, region, store);
  store.allocate_sizing(config.precision.dtype());

  const BatchLayout& layout = form.batch;
  const std::int64_t count = micro_batches_together(shape);
  Arena scratch("scratch"), batch("batch");
  const MicroBatch micro_batch = view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return batch.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
  const std::vector<MicroBatch> micro_batches(static_cast<std::size_t>(count), micro_batch);
  const std::vector<TargetResults> results(micro_batches.size(), form.results(layout, batch));

  PassPlan plan;
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
  plan.use.batch = layout.bytes(count);
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

Config config_for_passes(const CheckpointReader& checkpoint, const ScoringLayout& layout) {
  Config config = config_for_inference(checkpoint);
  const std::int64_t model_ranks = layout.tensor * layout.pipeline;
  verify(layout.ranks % model_ranks == 0, ErrorKind::configuration,
         "tensor {} × pipeline {} needs a multiple of {} ranks, not {}", layout.tensor, layout.pipeline, model_ranks,
         layout.ranks);
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = 0;
  config.train.micro_batch_size = layout.micro_batch_size;
  config.train.global_batch_size = layout.micro_batch_size * (layout.ranks / model_ranks);
  config.recompute = {.mode = "full"};  // a block keeps its input alone
  if (layout.precision != "checkpoint") config.precision.compute = layout.precision;
  resolve(config, layout.ranks, nullptr);
  return config;
}

Config config_for_decoding(const CheckpointReader& checkpoint, const ScoringLayout& layout) {
  Config config = config_for_passes(checkpoint, layout);
  verify(family_of(config.model).decodes, ErrorKind::configuration,
         "{}: a model of model.family = \"{}\" predicts no next tokens: it writes no text; megatron_checkpoint export "
         "makes a model of it that other programs read",
         checkpoint.path(), config.model.family);
  return config;
}

MemoryUse ForwardPasses::plan(const Config& config, const GridShape& shape, const GridCoordinates& at,
                              const PassForm& form, TransportKind kind) {
  return play_pass(config, shape, at, form, kind).use;
}

ForwardPasses::ForwardPasses(const Config& config, const ProcessGrid& grid, Backend& backend, const PassForm& form)
    : config_(config),
      grid_(grid),
      backend_(backend),
      region_(grid, false),
      chunks_(make_stages(config, grid, region_, store_)),
      scratch_("scratch") {
  const PassPlan plan = play_pass(config, grid.shape(), grid.at(), form, transport_of(*backend.device, grid.tensor()));
  Device& device = *backend.device;
  store_.allocate_values(device, config.precision.dtype());
  executor_ = std::make_unique<PipelineExecutor>(PipelineExecutor::Chunks{chunks_.front().get()}, grid, region_,
                                                 plan.passes, device);
  scratch_memory_ = Buffer(device, plan.use.scratch);
  scratch_ = Arena("scratch", scratch_memory_);
  loss_sums_ = allocate_losses(config, scratch_);
  for (std::size_t i = 0; i < plan.staging.size(); ++i) grid.groups()[i]->reserve_staging(plan.staging[i]);
  backend.ops->reserve(plan.use.kernels);
}

void ForwardPasses::load(const CheckpointReader& checkpoint) {
  load_weights(grid_.world(), checkpoint, store_, backend_);
}

void ForwardPasses::play(std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results) {
  Timers timers;
  backend_.ops->fill(loss_sums_, 0);
  executor_->run(actions_of(grid_, static_cast<std::int64_t>(micro_batches.size())), micro_batches,
                 settings_of(config_, loss_sums_, results), *backend_.ops, scratch_, timers);
}

double ForwardPasses::loss_sum() const {
  double sum = 0;
  backend_.device->copy_to_host(&sum, loss_sums_.data(), sizeof(sum));
  return sum;
}

bool ForwardPasses::reads(const BatchField& field) const {
  return chunks_.front()->reads(field);
}

MemoryUse ForwardPasses::used() const {
  MemoryUse used{.weights = store_.values().bytes() + store_.constant_bytes(),
                 .activations = ExecutorMemory::sum(executor_->used().slots),
                 .scratch = scratch_.high_water(),
                 .kernels = backend_.ops->workspace_bytes()};
  std::size_t& staging = backend_.device->is_host_memory() ? used.communication : used.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return used;
}

}  // namespace megatron
