#include "train/replica.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/background_save.h"
#include "comm/counting_communicator.h"
#include "config/run_schedule.h"
#include "train/saved_layout.h"

namespace megatron {

std::int64_t micro_batches_per_step(const Config& config) {
  return exact_division(config.train.global_batch_size, config.train.micro_batch_size * config.parallel.data,
                        "micro-batches per step");
}

bool saves_in_background(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  return checkpoint.async && (checkpoint.every_steps > 0 || checkpoint.every_minutes > 0);
}

std::vector<std::int64_t> micro_batch_counts(const Config& config) {
  std::vector<std::int64_t> counts;
  for (const std::int64_t samples : RunSchedule(config).batches().sizes()) {
    counts.push_back(
        exact_division(samples, config.train.micro_batch_size * config.parallel.data, "micro-batches per step"));
  }
  return counts;
}

namespace {

using TrainingActions = std::map<std::int64_t, std::vector<Action>>;

int chunks_of(const Config& config) {
  return static_cast<int>(config.parallel.virtual_stages);
}

TrainingActions training_schedules(const Config& config, const ProcessGrid& grid) {
  TrainingActions actions;
  for (const std::int64_t count : micro_batch_counts(config)) {
    actions[count] = make_schedule(config.parallel.schedule, grid.at().pipeline, grid.shape().pipeline,
                                   static_cast<int>(count), chunks_of(config));
  }
  return actions;
}

std::vector<Action> evaluation_schedule(const Config& config, const ProcessGrid& grid) {
  return forward_only(grid.at().pipeline, grid.shape().pipeline, static_cast<int>(micro_batches_per_step(config)),
                      chunks_of(config));
}

PipelineExecutor::Chunks pointers(const Stages& chunks) {
  PipelineExecutor::Chunks stages;
  for (const auto& chunk : chunks) stages.push_back(chunk.get());
  return stages;
}

OptimizerSettings optimizer_settings(const OptimizerConfig& optimizer) {
  return {.rule = update_rule(optimizer.name),
          .momentum = optimizer.momentum,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .epsilon = optimizer.epsilon,
          .clip_norm = optimizer.clip_grad_norm};
}

// Ranks that share the optimizer's state.
int shards(const Config& config, const GridShape& shape) {
  return config.optimizer.distributed ? shape.copies() : 1;
}

Tensor allocate_losses(Arena& scratch, const LossTerms& terms) {
  return scratch.allocate("losses", {static_cast<std::int64_t>(terms.size())}, DType::f64);
}

LossTerms loss_terms(const Config& config) {
  return family_of(config.model).loss_terms(config);
}

// A micro-batch of the configured size without memory.
MicroBatch sizing_micro_batch(const BatchLayout& layout, Arena& arena) {
  return view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return arena.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
}

}  // namespace

MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at) {
  return plan_memory(config, shape, at, planned_transport(config.run));
}

MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at,
                       TransportKind transport) {
  CountingCommunicator world(rank_of(at, shape), shape.ranks());
  CountingCommunicator tensors(rank_of(at, shape), shape.ranks(), "world", transport == TransportKind::staged);
  const ProcessGrid grid(world, shape, &tensors);
  TrafficMeter passes, sums;
  grid.tensor().set_meter(&passes);
  grid.pipeline().set_meter(&passes);
  grid.copies().set_meter(&sums);
  grid.kv_replicas().set_meter(&sums);
  for (int i = 0; i < grid.ties(); ++i) grid.tie(i).set_meter(&sums);

  const TensorRegion region(grid, config.parallel.sequence_parallel);
  const DType type = config.precision.dtype();
  ParameterStore store;
  const Stages chunks = make_stages(config, grid, region, store);
  store.allocate_sizing(type, shards(config, shape));

  const TrainingActions schedules = training_schedules(config, grid);
  const std::vector<Action>& actions = schedules.rbegin()->second;  // of the largest step
  Arena scratch("scratch"), batch("batch");
  const BatchLayout layout = batch_layout(config);
  const std::int64_t micro_batches = micro_batches_per_step(config);
  const std::vector<MicroBatch> micro_batch_list(static_cast<std::size_t>(micro_batches),
                                                 sizing_micro_batch(layout, batch));
  const LossTerms terms = loss_terms(config);
  const std::vector<double> gradient_scales(terms.size(), 1);
  const Tensor loss_sums = allocate_losses(scratch, terms);
  MemoryPlan plan;
  PipelineExecutor executor(pointers(chunks), grid, region);
  const std::unique_ptr<CountingOps> counting = make_counting_ops(config.run);
  CountingOps& ops = *counting;
  Timers timers;
  executor.run(actions, micro_batch_list,
               {.activation_type = type, .loss_sums = loss_sums, .gradient_scales = gradient_scales}, ops, scratch,
               timers);
  GradientReducer(grid, store).finish(ops, scratch);
  if (store.shards() > 1) {
    ParameterAllGather gathers(grid, store);
    for (std::size_t bucket = 0; bucket < store.buckets().size(); ++bucket) gathers.start(bucket);
    gathers.finish();
  }

  plan.forward_and_backward_bytes = static_cast<double>(passes.bytes_sent);
  plan.gradient_bytes = static_cast<double>(sums.bytes_sent);
  // With shards, copies have other sums over the other groups. All of a stage hold what the largest of them take.
  for (int shard = 0; store.shards() > 1 && shard < store.shards(); ++shard) {
    GradientReducer(grid, store, shard).sum_other_groups(ops, scratch);
  }

  const auto flat = static_cast<std::size_t>(store.flat_elements());
  plan.parameters = store.parameter_elements();
  for (const Parameter& parameter : store.all()) {
    if (parameter.owner) plan.stage_parameters += parameter.global_shape.elements();
  }
  plan.weights = flat * size_of(type) + store.constant_bytes();
  plan.gradients = flat * sizeof(float);
  plan.optimizer = Optimizer::state_bytes(store, grid.copies().rank(), optimizer_settings(config.optimizer));
  plan.batch = layout.bytes(micro_batches);
  if (saves_in_background(config)) {
    std::int64_t saved = 0;
    for (const SavedPart& part : saved_parts(store, grid)) saved += part.range.count;
    plan.add_snapshot(snapshot_bytes(saved, optimizer_settings(config.optimizer).moments()),
                      on_host_memory(config.run));
  }
  const std::vector<Action> evaluation = evaluation_schedule(config, grid);
  std::vector<const std::vector<Action>*> lists = {&evaluation};
  for (const auto& [count, list] : schedules) lists.push_back(&list);
  plan.passes = executor.memory_for(lists);
  plan.activations = ExecutorMemory::sum(plan.passes.slots);
  plan.communication = ExecutorMemory::sum(plan.passes.gradient_buffers);
  const bool moves_through_host = transport != TransportKind::nccl;
  std::size_t staging = 0;
  for (Communicator* group : grid.groups()) {
    group->all_reduce(batch.allocate("scalars", {4}, DType::f64));  // a step's sums, extremes of hashes
    // NCCL's is its own affair.
    plan.staging.push_back(moves_through_host ? group->staging_plan() : StagingPlan{});
    staging += plan.staging.back().bytes();
  }
  (on_host_memory(config.run) ? plan.communication : plan.host) += staging;
  plan.scratch = scratch.high_water();
  plan.kernels = ops.workspace_bytes();
  plan.matmul_flops = ops.matmul_flops();
  plan.attention_flops = ops.attention_flops();
  return plan;
}

Replica::Replica(const Config& config, const ProcessGrid& grid, Backend& backend)
    : config_(config),
      grid_(grid),
      backend_(backend),
      plan_(plan_memory(config, grid.shape(), grid.at(), transport_of(*backend.device, grid.model()))),
      overlap_gradients_(config.parallel.overlap_gradients),
      region_(grid, config.parallel.sequence_parallel),
      chunks_(make_stages(config, grid, region_, store_)),
      scratch_("scratch"),
      terms_(loss_terms(config)),
      loss_counts_(terms_.size()),
      gradient_scales_(terms_.size()),
      loss_means_(terms_.size()),
      training_actions_(training_schedules(config, grid)),
      evaluation_actions_(evaluation_schedule(config, grid)) {
  Device& device = *backend.device;
  store_.allocate(device, config.precision.dtype(), shards(config, grid.shape()));
  gradient_reducer_ = std::make_unique<GradientReducer>(grid, store_);
  gathers_ = std::make_unique<ParameterAllGather>(grid, store_);
  optimizer_ =
      std::make_unique<Optimizer>(store_, optimizer_settings(config.optimizer), device, *backend.ops, gathers_.get());
  optimizer_->initialize(config.train.seed);
  executor_ = std::make_unique<PipelineExecutor>(pointers(chunks_), grid, region_, plan_.passes, device);
  scratch_memory_ = Buffer(device, plan_.scratch);
  scratch_ = Arena("scratch", scratch_memory_);
  loss_sums_ = allocate_losses(scratch_, terms_);
  for (std::size_t i = 0; i < plan_.staging.size(); ++i) grid.groups()[i]->reserve_staging(plan_.staging[i]);
  backend.ops->reserve(plan_.kernels);
}

MemoryUse Replica::used() const {
  const ExecutorMemory passes = executor_->used();
  MemoryUse used{.weights = store_.values().bytes() + store_.constant_bytes(),
                 .gradients = store_.gradients().bytes(),
                 .optimizer = optimizer_->state_bytes(),
                 .activations = ExecutorMemory::sum(passes.slots),
                 .communication = ExecutorMemory::sum(passes.gradient_buffers),
                 .scratch = scratch_.high_water(),
                 .kernels = backend_.ops->workspace_bytes()};
  std::size_t& staging = backend_.device->is_host_memory() ? used.communication : used.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return used;
}

bool Replica::reads(const BatchField& field) const {
  return std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) { return chunk->reads(field); });
}

void Replica::sum_losses_over_stages() {
  grid_.pipeline().all_reduce(loss_sums_);
}

void Replica::read_losses() {
  backend_.device->copy_to_host(loss_means_.data(), loss_sums_.data(), loss_sums_.bytes());
}

bool Replica::finite_losses() {
  sum_losses_over_stages();
  read_losses();
  return std::all_of(loss_means_.begin(), loss_means_.end(), [](double sum) { return std::isfinite(sum); });
}

void Replica::play_training(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                            GradientReducer* sums, Timers& timers) {
  Ops& ops = *backend_.ops;
  ops.fill(store_.gradients(), 0);
  ops.fill(loss_sums_, 0);
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    gradient_scales_[i] = terms_[i].coefficient * loss.scale / loss.counts[i];
  }
  const PassSettings settings{.training = true,
                              .seed = config_.train.seed,
                              .step = static_cast<std::uint64_t>(step),
                              .activation_type = config_.precision.dtype(),
                              .gradient_reducer = sums,
                              .gathers = gathers_.get(),
                              .loss_sums = loss_sums_,
                              .gradient_scales = gradient_scales_};
  const auto actions = training_actions_.find(static_cast<std::int64_t>(micro_batches.size()));
  internal_check(actions != training_actions_.end(), "a step of a number of micro-batches that the run does not have");
  executor_->run(actions->second, micro_batches, settings, ops, scratch_, timers);
}

void Replica::forward_backward(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                               Timers& timers) {
  const bool under_backward = overlap_gradients_ || store_.shards() > 1;
  play_training(micro_batches, step, loss, under_backward ? gradient_reducer_.get() : nullptr, timers);
  gradient_reducer_->finish(*backend_.ops, scratch_);
  std::copy(loss.counts.begin(), loss.counts.end(), loss_counts_.begin());
  loss_scale_ = loss.scale;
}

Optimizer::Update Replica::update(UpdateSettings settings, Timers& timers) {
  const Timers::Scope scope(timers, Section::optimizer);
  internal_check(terms_.size() == 1, "a loss of several terms");
  settings.loss = loss_sums_;
  settings.loss_scale = loss_scale_;
  Optimizer::Update update = optimizer_->update(grid_, settings);
  update.loss /= loss_counts_[0];
  return update;
}

NonFiniteReport Replica::diagnose_non_finite_step(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                                  const LossScaling& loss, Timers& timers) {
  Device& device = *backend_.device;
  std::vector<ParameterPart> masters, values, sums, own;  // with shards, a rank has masters and sums of what it updates
  for (const Parameter& parameter : store().all()) {
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      masters.push_back({&parameter, optimizer_->state(part).master});
      sums.push_back({&parameter, store_.gradients().slice(0, part.first, part.count)});
    }
    values.push_back({&parameter, parameter.value});
    own.push_back({&parameter, parameter.gradient});
  }
  NonFiniteReport bad;
  bad.loss = !finite_losses();
  bad.masters = find_bad_tensors(masters, device);
  bad.values = find_bad_tensors(values, device);
  bad.gradients = find_bad_tensors(sums, device);
  play_training(micro_batches, step, loss, nullptr, timers);
  bad.loss_again = !finite_losses();
  bad.gradients_again = find_bad_tensors(own, device);
  return bad;
}

Losses Replica::evaluate(std::span<const MicroBatch> micro_batches, std::span<const double> loss_counts,
                         Timers& timers) {
  backend_.ops->fill(loss_sums_, 0);
  const PassSettings settings{.training = false,
                              .activation_type = config_.precision.dtype(),
                              .gathers = gathers_.get(),
                              .loss_sums = loss_sums_};
  executor_->run(evaluation_actions_, micro_batches, settings, *backend_.ops, scratch_, timers);
  sum_losses_over_stages();
  grid_.copies().all_reduce(loss_sums_);  // samples of other data ranks, rows of other context ranks
  read_losses();
  for (std::size_t i = 0; i < terms_.size(); ++i) loss_means_[i] /= loss_counts[i];
  return {total_loss(terms_, loss_means_), loss_means_};
}

TensorSlice Replica::piece(const Parameter& parameter, const FlatRange& part, bool with_optimizer) const {
  TensorSlice piece{
      parameter.name, parameter.global_shape, parameter.box, part.first - parameter.first, part.count, {}, {}, {}};
  const Optimizer::State state = optimizer_->state(part);
  piece.value = state.master;
  if (with_optimizer) {
    piece.m = state.m;
    piece.v = state.v;
  }
  return piece;
}

std::vector<TensorSlice> Replica::owned_slices() const {
  std::vector<TensorSlice> pieces;
  for (const SavedPart& part : saved_parts(store_, grid_)) {
    pieces.push_back(piece(*part.parameter, part.range, true));
  }
  return pieces;
}

std::vector<TensorSlice> Replica::all_slices(bool with_optimizer) const {
  std::vector<TensorSlice> pieces;
  for (const Parameter& parameter : store().all()) {  // not under values that are on their way
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      pieces.push_back(piece(parameter, part, with_optimizer));
    }
  }
  return pieces;
}

std::vector<TensorSlice> Replica::summed_gradients() const {
  std::vector<TensorSlice> pieces;
  for (const Parameter& parameter : store_.all()) {
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      TensorSlice piece{
          parameter.name, parameter.global_shape, parameter.box, part.first - parameter.first, part.count, {}, {}, {}};
      piece.value = store_.gradients().slice(0, part.first, part.count);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace megatron
