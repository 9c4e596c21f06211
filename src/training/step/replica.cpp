#include "training/step/replica.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/rules/exchange_rules.h"
#include "config/schema/run_schedule.h"
#include "distributed/comm/meanings.h"
#include "training/optimizer/whole_matrix.h"
#include "training/step/grid.h"
#include "training/step/loss_counts.h"
#include "training/step/offload.h"
#include "training/step/saved_layout.h"

namespace megatron {

std::int64_t micro_batches_per_step(const Config& config) {
  return exact_division(config.train.global_batch_size, config.train.micro_batch_size * config.parallel.data,
                        "micro-batches per step");
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

TrainingActions training_schedules(const Config& config, const ProcessGrid& grid,
                                   const std::vector<std::int64_t>& counts) {
  TrainingActions actions;
  for (const std::int64_t count : counts) {
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

ConstTensor as_tensor(std::span<const double> numbers) {
  return {numbers.data(), {static_cast<std::int64_t>(numbers.size())}, DType::f64};
}

Tensor allocate_losses(Arena& scratch, const LossTerms& terms) {
  return scratch.allocate("losses", {static_cast<std::int64_t>(terms.size())}, DType::f64);
}

std::size_t route_counts(const ModelConfig& model) {
  return static_cast<std::size_t>(model.expert_layers() * (model.moe.experts + 1));
}

std::optional<RouteTally> allocate_routes(Arena& scratch, const ModelConfig& model) {
  if (model.expert_layers() == 0) return std::nullopt;
  return RouteTally{
      .choices = scratch.allocate("choices of experts", {model.expert_layers(), model.moe.experts + 1}, DType::f64),
      .least_gap = scratch.allocate("least router gap", {1}, DType::f64)};
}

}  // namespace

Replica::Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family)
    : Replica(config, grid, backend, family,
              plan_memory(config, grid.shape(), grid.at(), transport_of(*backend.device, grid.model()), family)) {
  for (std::size_t i = 0; i < plan_->staging.size(); ++i) grid.groups()[i]->reserve_staging(plan_->staging[i]);
  backend.ops->reserve(plan_->kernels);
}

Replica::Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family,
                 const Unlimited& played)
    : Replica(config, grid, backend, family, std::nullopt) {
  if (played.counts.empty()) return;
  training_actions_.merge(training_schedules(config, grid, played.counts));
  allocate_arenas();
}

Replica::Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family,
                 std::optional<MemoryPlan> plan)
    : config_(config),
      grid_(grid),
      backend_(backend),
      plan_(std::move(plan)),
      overlap_gradients_(config.parallel.overlap_gradients),
      region_(grid, config.parallel.sequence_parallel),
      chunks_(family.make_stages(config, grid, region_, store_)),
      scratch_("scratch"),
      terms_(family.loss_terms(config)),
      gradient_scales_(terms_.size()),
      loss_values_(terms_.size()),
      training_actions_(training_schedules(config, grid, micro_batch_counts(config))),
      evaluation_actions_(evaluation_schedule(config, grid)) {
  Device& device = *backend.device;
  mark_matrices(store_, ParameterGroups(config), grid.shape().tensor);
  store_.allocate(device, config.precision.dtype(), optimizer_shards(config, grid.shape()));
  first_sums_ = std::make_unique<FirstSums>(store_);
  gradient_reducer_ = std::make_unique<GradientReducer>(grid, store_);
  if (store_.divides_gradients()) gradient_ring_ = std::make_unique<GradientRing>(grid, store_);
  gathers_ = std::make_unique<ParameterAllGather>(grid, store_);
  const std::size_t offloaded = Optimizer::state_bytes(store_, gathers_->shard(), ParameterGroups(config)).offloaded;
  optimizer_ =
      std::make_unique<Optimizer>(store_, ParameterGroups(config), device, *backend.ops, gathers_.get(), &scratch_,
                                  plan_ ? make_offloaded_memory(config, grid, device, offloaded)
                                        : count_offloaded_memory(config, device, offloaded),
                                  static_cast<int>(config.run.threads));
  optimizer_->initialize(config.train.seed);
  update_step_ =
      std::make_unique<UpdateStep>(*optimizer_, grid, terms_.size(), device, *backend.ops, route_counts(config.model));
  allocate_arenas();
  loss_sums_ = allocate_losses(scratch_, terms_);
  routes_ = allocate_routes(scratch_, config.model);
}

void Replica::allocate_arenas() {
  Device& device = *backend_.device;
  if (!plan_) {
    executor_ = std::make_unique<PipelineExecutor>(pointers(chunks_), grid_, region_, action_lists());
    return;
  }
  executor_ = std::make_unique<PipelineExecutor>(pointers(chunks_), grid_, region_, plan_->passes, device);
  scratch_memory_ = Buffer(device, plan_->scratch);
  scratch_ = Arena("scratch", scratch_memory_);
}

std::vector<const std::vector<Action>*> Replica::action_lists() const {
  std::vector<const std::vector<Action>*> lists = {&evaluation_actions_};
  for (const auto& [count, list] : training_actions_) lists.push_back(&list);
  return lists;
}

ExecutorMemory Replica::passes_needed() const {
  return executor_->memory_for(action_lists());
}

MemoryUse Replica::used() const {
  const ExecutorMemory passes = executor_->used();
  MemoryUse used{.weights = store_.values().bytes() + store_.constant_bytes(),
                 .gradients = store_.gradients().bytes(),
                 .optimizer = optimizer_->state_bytes() + update_step_->bytes(),
                 .activations = ExecutorMemory::sum(passes.slots),
                 .communication = ExecutorMemory::sum(passes.gradient_buffers),
                 .scratch = scratch_.high_water(),
                 .kernels = backend_.ops->workspace_bytes()};
  used.add_offloaded(optimizer_->offloaded_bytes(), config_.optimizer);
  std::size_t& staging = backend_.device->is_host_memory() ? used.communication : used.host;
  for (const Communicator* group : grid_.groups()) staging += group->staging_bytes();
  return used;
}

bool Replica::reads(const BatchField& field) const {
  return std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) { return chunk->reads(field); });
}

void Replica::sum_losses_over_stages() {
  grid_.pipeline().all_reduce(loss_sums_, kLossesOfStages);
}

void Replica::read_losses() {
  backend_.device->copy_to_host(loss_values_.data(), loss_sums_.data(), loss_sums_.bytes());
}

bool Replica::finite_losses() {
  sum_losses_over_stages();
  read_losses();
  return std::all_of(loss_values_.begin(), loss_values_.end(), [](double sum) { return std::isfinite(sum); });
}

void Replica::play_training(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                            GradientReducer* sums, Timers& timers) {
  internal_check(loss.counts.size() == terms_.size(), "counts of other terms of the loss", loss.counts.size(),
                 terms_.size());
  grid_.world().expects(as_tensor(loss.counts), kLossCounts);
  Ops& ops = *backend_.ops;
  first_sums_->begin(ops);
  ops.fill(loss_sums_, 0);
  if (routes_) {
    ops.fill(routes_->choices, 0);
    ops.fill(routes_->least_gap, std::numeric_limits<double>::infinity());
  }
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    gradient_scales_[i] = term_mean(terms_[i].coefficient * loss.scale, loss.counts[i]);
  }
  const PassSettings settings{.training = true,
                              .seed = config_.train.seed,
                              .step = static_cast<std::uint64_t>(step),
                              .activation_type = config_.precision.dtype(),
                              .exchange = exchange_of(config_).kind,
                              .gradient_reducer = sums,
                              .first_sums = first_sums_.get(),
                              .gradient_ring = gradient_ring_.get(),
                              .gathers = gathers_.get(),
                              .loss_sums = loss_sums_,
                              .gradient_scales = gradient_scales_,
                              .routes = routes_ ? &*routes_ : nullptr};
  const auto actions = training_actions_.find(static_cast<std::int64_t>(micro_batches.size()));
  internal_check(actions != training_actions_.end(), "a step of a number of micro-batches that the run does not have",
                 micro_batches.size());
  executor_->run(actions->second, micro_batches, settings, ops, scratch_, timers);
  first_sums_->finish_from(0, ops);
}

StepSums Replica::forward_backward(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                   const LossScaling& loss, Timers& timers) {
  optimizer_->expect_update();
  const bool under_backward = overlap_gradients_ || store_.sharded();
  play_training(micro_batches, step, loss, under_backward ? gradient_reducer_.get() : nullptr, timers);
  if (gradient_ring_ != nullptr) gradient_ring_->finish(*backend_.ops);
  gradient_reducer_->finish(*backend_.ops, scratch_);
  StepSums sums{.losses = loss_sums_, .loss_counts = loss.counts, .loss_scale = loss.scale};
  if (routes_) sums.routes = {routes_->choices.view({routes_->choices.elements()}), routes_->least_gap};
  return sums;
}

Replica::Update Replica::update(const StepSums& sums, UpdateSettings settings, Timers& timers) {
  internal_check(sums.loss_counts.size() == terms_.size(), "counts of other terms of the loss", sums.loss_counts.size(),
                 terms_.size());
  const Timers::Scope scope(timers, Section::optimizer);
  settings.gradient_scale = sums.loss_scale;
  const StepVerdict verdict = update_step_->run(settings, sums.losses, sums.routes);
  if (!verdict.skipped) balance_experts();
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    loss_values_[i] = term_mean(verdict.loss_sums[i], sums.loss_counts[i]);
  }
  return {{total_loss(terms_, loss_values_), loss_values_},
          verdict.gradient_norm,
          verdict.skipped,
          verdict.bad_loss,
          verdict.counts,
          verdict.local_router_gap};
}

void Replica::balance_experts() {
  const std::int64_t experts = config_.model.moe.experts;
  for (const ModelState& state : store_.states()) {
    backend_.ops->shift_choice_bias({.choices = update_step_->counts().slice(0, state.row * (experts + 1), experts),
                                     .rate = static_cast<float>(config_.model.moe.bias_rate),
                                     .bias = state.value});
  }
}

// Divided gradients of a layer are only there as each of its backwards ends.
BadTensors Replica::replay_gradients(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                     const LossScaling& loss, Timers& timers) {
  std::vector<bool> bad(store_.all().size());
  const auto look = [&](const Parameter& parameter) {
    const auto index = static_cast<std::size_t>(parameter.index);
    bad[index] = bad[index] || has_bad_number({&parameter, parameter.gradient}, *backend_.device);
  };
  if (gradient_ring_ != nullptr) {
    gradient_ring_->look_instead([&](const DividedLayer& layer) {
      const int unit = store_.at(layer.first_parameter).unit;
      for (const Parameter& parameter : store_.all()) {
        if (parameter.unit == unit) look(parameter);
      }
    });
  }
  play_training(micro_batches, step, loss, nullptr, timers);
  if (gradient_ring_ != nullptr) gradient_ring_->look_instead({});
  BadTensors tensors;
  for (const Parameter& parameter : store_.all()) {
    if (!store_.divides_gradients() || parameter.unit == kNone) look(parameter);
    if (bad[static_cast<std::size_t>(parameter.index)]) tensors.add(parameter);
  }
  return tensors;
}

NonFiniteReport Replica::diagnose_non_finite_step(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                                  const LossScaling& loss, Timers& timers) {
  wait_for_values();
  Device& device = *backend_.device;
  std::vector<ParameterPart> masters, values, sums;  // with shards, a rank has masters and sums of what it updates
  for (const Parameter& parameter : store_.all()) {
    const bool divided = store_.divides_weights_of(store_.bucket_of(parameter));
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      masters.push_back({&parameter, optimizer_->state(part).master});
      sums.push_back({&parameter, store_.gradients_of(part)});
      if (divided) values.push_back({&parameter, store_.values_of(part)});
    }
    if (!divided) values.push_back({&parameter, parameter.value});
  }
  NonFiniteReport bad;
  bad.loss = !finite_losses();
  bad.masters = find_bad_tensors(masters, device);
  bad.values = find_bad_tensors(values, device);
  bad.gradients = find_bad_tensors(sums, device);
  bad.replayed_gradients = replay_gradients(micro_batches, step, loss, timers);
  bad.replayed_loss = !finite_losses();
  return bad;
}

PassSettings Replica::evaluation_settings() {
  return {.training = false,
          .activation_type = config_.precision.dtype(),
          .exchange = exchange_of(config_).kind,
          .gathers = gathers_.get(),
          .loss_sums = loss_sums_,
          .experts_take_all = config_.model.task_outputs > 0};  // as megatron_eval, which tells labels later
}

void Replica::score(std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results, Timers& timers) {
  internal_check(micro_batches.size() == results.size(), "results of other micro-batches", micro_batches.size(),
                 results.size());
  backend_.ops->fill(loss_sums_, 0);
  PassSettings settings = evaluation_settings();
  settings.results = results;
  settings.experts_take_all = true;  // a text's score must not depend on the texts next to it
  executor_->run(first_micro_batches(evaluation_actions_, static_cast<int>(micro_batches.size())), micro_batches,
                 settings, *backend_.ops, scratch_, timers);
}

Losses Replica::evaluate(std::span<const MicroBatch> micro_batches, std::span<const double> loss_counts, Timers& timers,
                         std::span<const TargetResults> results) {
  internal_check(loss_counts.size() == terms_.size(), "counts of other terms of the loss", loss_counts.size(),
                 terms_.size());
  grid_.world().expects(as_tensor(loss_counts), kLossCounts);
  backend_.ops->fill(loss_sums_, 0);
  internal_check(results.empty() || results.size() == micro_batches.size(), "results of other micro-batches",
                 micro_batches.size(), results.size());
  PassSettings settings = evaluation_settings();
  settings.results = results;
  executor_->run(evaluation_actions_, micro_batches, settings, *backend_.ops, scratch_, timers);
  sum_losses_over_stages();
  grid_.copies().all_reduce(loss_sums_, kLossesOfCopies);  // samples of other data ranks, rows of other context ranks
  read_losses();
  grid_.world().expects(as_tensor(loss_values_), kEvaluatedLosses);
  for (std::size_t i = 0; i < terms_.size(); ++i) loss_values_[i] = term_mean(loss_values_[i], loss_counts[i]);
  return {total_loss(terms_, loss_values_), loss_values_};
}

TensorSlice Replica::slice(const Parameter& parameter, const FlatRange& part, bool with_optimizer) const {
  Optimizer::State state = optimizer_->state(part);
  if (!with_optimizer) state.states.clear();
  return {parameter.name, parameter.global_shape, parameter.box,          part.first - parameter.first,
          part.count,     state.master,           std::move(state.states)};
}

TensorSlice Replica::slice(const ModelState& state, const FlatRange& part) const {
  const Tensor value = state.value.slice(0, part.first, part.count);
  return {state.name, state.global_shape, state.box, part.first, part.count, value};
}

std::vector<TensorSlice> Replica::owned_slices() const {
  std::vector<TensorSlice> slices;
  for (const SavedPart& part : saved_parts(store_, grid_.at(), grid_.shape())) {
    slices.push_back(slice(*part.parameter, part.range, true));
  }
  for (const SavedState& part : saved_states(store_, grid_.at(), grid_.shape())) {
    slices.push_back(slice(*part.state, part.range));
  }
  return slices;
}

std::vector<TensorSlice> Replica::all_slices(bool with_optimizer) const {
  std::vector<TensorSlice> slices;
  for (const Parameter& parameter : store_.all()) {
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      slices.push_back(slice(parameter, part, with_optimizer));
    }
  }
  for (const ModelState& state : store_.states()) slices.push_back(slice(state, {0, state.elements()}));
  return slices;
}

std::vector<TensorSlice> Replica::summed_gradients() const {
  std::vector<TensorSlice> slices;
  for (const Parameter& parameter : store_.all()) {
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer_->owned())) {
      slices.push_back({parameter.name, parameter.global_shape, parameter.box, part.first - parameter.first, part.count,
                        store_.gradients_of(part)});
    }
  }
  return slices;
}

}  // namespace megatron
