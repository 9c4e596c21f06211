#include "training/step/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/text/foreign_json.h"
#include "checkpoint/store/tensor_slices.h"
#include "config/schema/print.h"
#include "data/shards/kept_tokenizer.h"
#include "distributed/comm/agreement.h"
#include "training/datasets/losses.h"
#include "training/optimizer/optimizer_facts.h"
#include "training/step/loss_counts.h"

namespace megatron {

namespace {

constexpr const char* kConsumedKey = "consumed_before";  // in a checkpoint's extra state

LearningRate learning_rate_of(const LearningRateConfig& rate) {
  return {.peak = rate.peak,
          .minimum = rate.minimum,
          .warmup_length = rate.counts_tokens() ? rate.warmup_tokens : rate.warmup_samples,
          .decay_length = rate.counts_tokens() ? rate.decay_tokens : rate.decay_samples,
          .style = decay_style(rate.decay),
          .wsd_decay_length = rate.counts_tokens() ? rate.wsd_decay_tokens : rate.wsd_decay_samples,
          .wsd_style = wsd_style(rate.wsd_style)};
}

WeightDecay weight_decay_of(const OptimizerConfig& optimizer, std::int64_t run_samples) {
  return {.start = optimizer.weight_decay,
          .end = optimizer.weight_decay_end.value_or(optimizer.weight_decay),
          .run_samples = run_samples,
          .style = weight_decay_style(optimizer.weight_decay_schedule)};
}

LossScalerSettings loss_scaler_settings(const PrecisionConfig& precision) {
  const bool dynamic = precision.loss_scale == 0 && precision.dtype() == DType::f16;
  return {.constant = dynamic                    ? 0
                      : precision.loss_scale > 0 ? precision.loss_scale
                                                 : 1,
          .initial = precision.initial_loss_scale,
          .minimum = precision.minimum_loss_scale,
          .window = precision.loss_scale_window,
          .hysteresis = precision.loss_scale_hysteresis};
}

/// Removes the slices of those records that have this role.
template <class Record>
void leave_out(std::vector<TensorSlice>& slices, const std::vector<Record>& records, Role role) {
  std::set<std::string> names;
  for (const Parameter& record : records) {
    if (record.role == role) names.insert(record.name);
  }
  std::erase_if(slices, [&](const TensorSlice& slice) { return names.contains(slice.name); });
}

}  // namespace

Trainer::Trainer(const Config& config, const ProcessGrid& grid, Backend& backend, Datasets& datasets)
    : config_(config),
      grid_(grid),
      backend_(backend),
      datasets_(datasets),
      replica_(config, grid, backend),
      batch_memory_(batch_layout_of_rank(family_of(config.model), config, grid.context().rank()),
                    micro_batches_per_step(config), *backend.device),
      terms_(family_of(config.model).loss_terms(config)),
      schedule_(config),
      learning_rate_(learning_rate_of(config.learning_rate)),
      weight_decay_(weight_decay_of(config.optimizer, schedule_.samples_after(config.train.steps))),
      loss_scaler_(loss_scaler_settings(config.precision)) {
  traffic_.timers = &timers_;
  timers_.set_activity(grid.world().activity());
  timers_.set_ranges(backend.ops->ranges());
  set_meters(&traffic_);
  if (!config.evaluation.tasks.empty()) {
    scores_.emplace(
        grid, *backend.device,
        ScoringBatches{.buffer = &batch_memory_.buffer(),
                       .micro_batches = micro_batches_per_step(config),
                       .row_unit = config.parallel.sequence_parallel ? config.parallel.tensor : 1,
                       .number_rows = [this](const BatchSizes& sizes) { batch_memory_.number_rows(sizes); }});
  }
  if (config.model.task_outputs > 0) {
    label_scores_.emplace(grid, *backend.device, batch_memory_.buffer().layout().sizes, config.model.task_classes(),
                          micro_batches_per_step(config));
  }
  if (saves_in_background(config)) {
    // A rank whose node has not that much more must not leave the others waiting for it.
    agree(grid.world(), [&] {
      background_save_ =
          std::make_unique<BackgroundSave>(grid.world(), *backend.device, snapshot_bytes(replica_.owned_slices()));
    });
  }
}

Trainer::~Trainer() {
  set_meters(nullptr);
}

void Trainer::set_meters(TrafficMeter* meter) {
  for (Communicator* group : grid_.groups()) group->set_meter(meter);
}

std::function<bool(const BatchField&)> Trainer::read_here() const {
  return [&](const BatchField& field) { return replica_.reads(field); };
}

// The samples of the steps from here to the end of the run.
BatchPlan Trainer::training_plan() const {
  const bool curriculum = !config_.train.curriculum.schedule.empty();
  return [schedule = schedule_, first = step_, end = config_.train.steps, before = consumed_before_,
          curriculum](std::int64_t step) {
    if (first + step >= end) return GlobalBatch{};
    const StepShape shape = schedule.step_after(first + step);
    return GlobalBatch{static_cast<std::uint64_t>(before + shape.first_sample), shape.samples,
                       curriculum ? shape.sequence : 0};
  };
}

// Megatron's orders end; "epoch" does not.
void Trainer::set_consumed_before(std::int64_t samples) {
  const std::int64_t run = schedule_.samples_after(config_.train.steps);
  const auto there = static_cast<std::int64_t>(datasets_.train().samples->samples());
  verify(!config_.data.megatrons_order() || samples + run <= there, ErrorKind::configuration,
         "the run has {} samples after {} that were consumed before it, but data.order_samples makes an order of {}; "
         "raise it (which changes the order from the first sample on), or train for less",
         run, samples, there);
  consumed_before_ = samples;
  batches_.reset();
}

StepResult Trainer::train_step(const std::function<void(double loss_scale)>& before_update) {
  internal_check(!finished(), "a step after the last one");
  if (Activity* activity = grid_.world().activity()) activity->set_step(step_ + 1);
  if (batches_ == nullptr) {
    batches_ =
        std::make_unique<DeviceBatches>(config_, grid_, batch_memory_, *datasets_.train().samples, training_plan(),
                                        /*padded=*/false, read_here());
  }
  StepResult result;
  result.loss_scale = loss_scaler_.scale();
  {
    const Timers::Scope scope(timers_, Section::data);
    micro_batches_ = batches_->next();
    sum_loss_counts(grid_, terms_, *batches_, loss_counts_);
  }
  result.batch = schedule_.step_after(step_);
  const StepSums sums =
      replica_.forward_backward(micro_batches_, step_ + 1, {loss_counts_, result.loss_scale}, timers_);
  batch_memory_.mark_read();
  const std::int64_t samples = schedule_.samples_after(step_ + 1);
  result.learning_rate =
      learning_rate_.at(config_.learning_rate.counts_tokens() ? schedule_.tokens_after(step_ + 1) : samples);
  result.weight_decay = weight_decay_.at(samples);
  wait_until_copied();
  if (before_update) before_update(result.loss_scale);
  const Replica::Update update =
      replica_.update(sums, {.learning_rate = result.learning_rate, .weight_decay = result.weight_decay}, timers_);
  result.loss = update.loss.total;
  result.loss_terms.assign(update.loss.terms.begin(), update.loss.terms.end());
  result.loss_counts = loss_counts_;
  result.gradient_norm = update.gradient_norm;
  if (!update.choices.empty()) result.experts = {config_.model.moe.experts, update.choices, update.least_gap};
  result.skipped = update.skipped;
  result.searching = update.skipped && !update.bad_loss && loss_scaler_.searching();
  loss_scaler_.update(update.skipped);
  ++step_;
  return result;
}

std::optional<EvaluatedLoss> Trainer::evaluate(const SampleSet& samples, std::int64_t first_sample,
                                               const std::function<bool()>& stop) {
  const std::int64_t batch = config_.train.global_batch_size, counted = evaluation_samples(config_, samples);
  const std::int64_t steps = (counted + batch - 1) / batch;
  const BatchPlan plan = [=](std::int64_t step) {
    if (step >= steps) return GlobalBatch{};
    return GlobalBatch{.first_sample = static_cast<std::uint64_t>(first_sample + step * batch),
                       .samples = batch,
                       .padding = std::max<std::int64_t>(0, (step + 1) * batch - counted)};
  };
  const Timers::Scope scope(timers_, Section::evaluation);
  micro_batches_ = {};  // their memory is the evaluation's now
  DeviceBatches batches(config_, grid_, batch_memory_, *samples.samples, plan, counted % batch != 0, read_here());
  std::vector<double> sums(terms_.size()), all(terms_.size()), counts;
  if (label_scores_) label_scores_->begin();
  for (std::int64_t i = 0; i < steps; ++i) {
    if (stop()) return std::nullopt;
    const std::span<const MicroBatch> micro_batches = batches.next();
    sum_loss_counts(grid_, terms_, batches, counts);
    const Losses losses = replica_.evaluate(
        micro_batches, counts, timers_,
        label_scores_ ? label_scores_->results(micro_batches.size()) : std::span<const TargetResults>());
    if (label_scores_) label_scores_->add(micro_batches);
    for (std::size_t term = 0; term < terms_.size(); ++term) {
      sums[term] += counts[term] * losses.terms[term];
      all[term] += counts[term];
    }
    batch_memory_.mark_read();
  }
  for (std::size_t term = 0; term < terms_.size(); ++term) sums[term] = term_mean(sums[term], all[term]);
  EvaluatedLoss evaluated{total_loss(terms_, sums), sums};
  if (label_scores_) evaluated.labels = label_scores_->sum();
  return evaluated;
}

std::optional<std::vector<TargetScore>> Trainer::score(std::span<const ScoredSequence> sequences,
                                                       const std::function<bool()>& stop) {
  const Timers::Scope scope(timers_, Section::evaluation);
  micro_batches_ = {};  // their memory is the task's now
  const auto play = [&](std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results) {
    replica_.score(micro_batches, results, timers_);
    batch_memory_.mark_read();
  };
  return scores_.value().score(sequences, play, [&](std::int64_t) { return !stop(); });
}

SkipReport Trainer::explain_skip(const StepResult& result) {
  const double scale = result.searching ? loss_scaler_.smallest() : result.loss_scale;
  NonFiniteReport bad = replica_.diagnose_non_finite_step(micro_batches_, step_, {loss_counts_, scale}, timers_);
  bad.loss_scale = result.loss_scale;
  bad.replayed_loss_scale = scale;
  const bool in_replay = grid_.agree(bad.bad_in_replay());
  return {describe_non_finite_step(grid_, bad), result.searching && !in_replay};
}

void Trainer::check_replicas() {
  replica_.wait_for_values();
  if (replica_check_ == nullptr) {
    replica_check_ = std::make_unique<ReplicaCheck>(grid_, replica_.store(), *backend_.device, replica_.optimizer());
  }
  replica_check_->run(fmt::format("after step {}", step_));
}

void Trainer::require_finite_parameters() {
  require_finite(grid_.world(), replica_.owned_slices(), *backend_.device);
}

nlohmann::json Trainer::facts() const {
  return model_signature(config_, datasets_.vocabulary());
}

TrainingState Trainer::state(const nlohmann::json& loop) const {
  TrainingState state;
  state.step = step_;
  state.samples = samples();
  state.tokens = tokens();
  state.facts = facts();
  state.extra = {{kUpdatesKey, replica_.optimizer().updates()},
                 {"config", print_config(config_)},
                 {"loop", loop},
                 {"order", order_facts(config_, datasets_)},
                 {"data_hash", datasets_.train_hash()}};
  state.extra.update(optimizer_facts(config_));
  state.extra.update(schedule_facts(config_));
  if (consumed_before_ > 0) state.extra[kConsumedKey] = consumed_before_;
  if (carried_.is_object()) state.extra.update(carried_);
  // A constant scale has no state, and a run that resumes from one with a dynamic scale begins a new search.
  if (loss_scaler_.dynamic()) {
    const LossScaler::State& scaler = loss_scaler_.state();
    state.extra[kLossScalerKey] = {
        {"scale", scaler.scale}, {"good_steps", scaler.good_steps}, {"hysteresis_left", scaler.hysteresis_left}};
  }
  return state;
}

SaveReport Trainer::save(const std::string& run_directory, const nlohmann::json& loop, SaveOptions options) {
  const Timers::Scope scope(timers_, Section::saving);
  options.keep_last = config_.checkpoint.keep_last;
  return save_checkpoint(grid_.world(), run_directory, state(loop), replica_.owned_slices(), *backend_.device, options);
}

void Trainer::start_save(const std::string& run_directory, const nlohmann::json& loop, SaveOptions options) {
  const Timers::Scope scope(timers_, Section::saving);
  options.keep_last = config_.checkpoint.keep_last;
  background_save_->start(run_directory, state(loop), replica_.owned_slices(), options);
}

std::optional<SaveReport> Trainer::advance_save() {
  const Timers::Scope scope(timers_, Section::saving);
  return background_save_->advance();
}

void Trainer::wait_until_copied() {
  if (background_save_ == nullptr || !background_save_->copying()) return;
  const Timers::Scope scope(timers_, Section::saving);
  background_save_->wait_until_copied();
}

void Trainer::load(const CheckpointReader& checkpoint, const std::vector<TensorSlice>& slices) {
  wait_until_copied();
  replica_.wait_for_values();
  checkpoint.read(grid_.world(), slices, *backend_.device);
  replica_.optimizer().set_values_from_master();
}

void Trainer::carry_on(const CheckpointReader& checkpoint) {
  carried_ = nlohmann::json::object();
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    for (const char* key : kCarriedKeys) {
      if (extra.contains(key)) carried_[key] = extra.at(key);
    }
  });
}

nlohmann::json Trainer::resume(const CheckpointReader& checkpoint, const std::string& chosen_by) {
  require_resumable(checkpoint.state(), config_, facts(), checkpoint.path(), chosen_by);
  require_same_optimizer(checkpoint, config_, replica_.store(), grid_.world());
  std::int64_t updates = 0, consumed = 0;
  LossScaler scaler = loss_scaler_;
  nlohmann::json loop = nlohmann::json::object();
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    updates = integer_at(extra, kUpdatesKey, 0, checkpoint.state().step);
    if (extra.contains(kConsumedKey)) {
      consumed = integer_at(extra, kConsumedKey, 0, std::numeric_limits<std::int64_t>::max() / 2);
    }
    if (extra.contains("loop")) loop = object_at(extra, "loop");
    if (!extra.contains(kLossScalerKey)) return;
    const nlohmann::json saved = object_at(extra, kLossScalerKey);
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    scaler.set_state({number_at(saved, "scale"), integer_at(saved, "good_steps", 0, most),
                      integer_at(saved, "hysteresis_left", 0, most)});
  });
  load(checkpoint, replica_.all_slices(/*with_optimizer=*/true));
  carry_on(checkpoint);
  step_ = checkpoint.state().step;
  set_consumed_before(consumed);
  replica_.optimizer().set_updates(updates);
  loss_scaler_ = scaler;
  batches_.reset();
  return loop;
}

std::vector<FactDifference> Trainer::changed_order(const CheckpointReader& checkpoint) const {
  nlohmann::json saved = nlohmann::json::object();
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    if (extra.contains("order")) saved = object_at(extra, "order");
  });
  return compare_facts(saved, order_facts(config_, datasets_));
}

InitialWeights Trainer::initialize_from(const CheckpointReader& checkpoint) {
  const nlohmann::json current = facts();
  const nlohmann::json saved = require_weights_of(checkpoint.state(), config_.model, current, checkpoint.path());
  std::vector<TensorSlice> slices = replica_.all_slices(/*with_optimizer=*/false);
  const bool has_task = config_.model.task_outputs > 0;
  const bool same_task = saved.value("task", nlohmann::json()) == current.value("task", nlohmann::json());
  if (!has_choice_bias(saved)) leave_out(slices, replica_.store().states(), Role::router);
  if (has_task && !same_task) leave_out(slices, replica_.store().all(), Role::task_head);
  load(checkpoint, slices);
  set_consumed_before(config_.checkpoint.consumed_samples);
  carry_on(checkpoint);
  return {.changes = compare_facts(resume_signature(config_.model, saved), resume_signature(config_.model, current)),
          .task_head = same_task && has_task};
}

}  // namespace megatron
