#include "training/step/memory_plan.h"

#include <algorithm>

#include "base/core/trace_recorder.h"
#include "checkpoint/store/background_save.h"
#include "training/optimizer/whole_matrix.h"
#include "training/step/counting_job.h"
#include "training/step/label_scores.h"
#include "training/step/saved_layout.h"
#include "training/step/sequence_scores.h"

namespace megatron {

bool saves_in_background(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  return checkpoint.async && (checkpoint.every_steps > 0 || checkpoint.minutes_between() > 0 || checkpoint.keep_best);
}

namespace {

// The most numbers that ranks agree on outside of a step, but for the sums of an evaluation's losses: extremes of
// hashes, votes to stop and save.
constexpr std::int64_t kDecisionNumbers = 4;

}  // namespace

StepSums play_step(const PlayedReplica& played, std::span<const double> counts) {
  const auto& [config, job, replica, family] = played;
  Arena batch("batch");
  const std::vector<MicroBatch> micro_batches =
      sizing_micro_batches(config, family, micro_batch_counts(config).back(), batch);
  Timers timers;
  const StepSums sums = replica.forward_backward(micro_batches, 1, {.counts = counts}, timers);
  replica.optimizer().set_values_from_master();  // the gathers of an update, without its sums of a few numbers
  return sums;
}

namespace {

// Forward passes that may need more than a training step's, as experts may have more room in them.
void play_evaluations(const PlayedReplica& played) {
  const auto& [config, job, replica, family] = played;
  const MoeConfig& moe = config.model.moe;
  if (moe.experts == 0) return;
  Arena batch("batch");
  const std::vector<MicroBatch> micro_batches =
      sizing_micro_batches(config, family, micro_batches_per_step(config), batch);
  Timers timers;
  if (moe.evaluation_capacity_factor > moe.capacity_factor || config.model.task_outputs > 0) {
    replica.evaluate(micro_batches, std::vector<double>(family.loss_terms(config).size(), 1), timers);
  }
  if (!config.evaluation.tasks.empty()) {
    replica.score(micro_batches, std::vector<TargetResults>(micro_batches.size()), timers);
  }
}

// Ranks work on other matrices. All of a stage hold what the largest of them take.
void play_matrices(const PlayedReplica& played) {
  const auto& [config, job, replica, family] = played;
  const ParameterGroups groups(config);
  Arena scratch("scratch");
  for (const Parameter& parameter : replica.store().all()) {
    const MatrixUpdate* const rule = groups.of(parameter).rule->update_matrix;
    if (rule == nullptr) continue;
    const ArenaScope scope(scratch);
    const DirectedMatrix matrix{&parameter, rule};
    make_whole(*job.ops, job.grid.tensor(), scratch, {&matrix, 1});
    rule->make_whole(*job.ops, scratch, scratch.allocate("x", parameter.global_shape, DType::f32),
                     scratch.allocate("y", parameter.global_shape, DType::f32));
  }
}

// Bytes of what the copy at these coordinates saves, of this rank's store.
std::size_t saved_bytes(const ParameterStore& store, const ParameterGroups& groups, const GridCoordinates& copy,
                        const GridShape& shape) {
  std::size_t bytes = 0;
  for (const SavedPart& part : saved_parts(store, copy, shape)) {
    const std::size_t states = groups.of(*part.parameter).states().size() * size_of(groups.state_type());
    bytes += static_cast<std::size_t>(part.range.count) * (sizeof(float) + states);
  }
  for (const SavedState& part : saved_states(store, copy, shape)) {
    bytes += static_cast<std::size_t>(part.range.count) * sizeof(float);
  }
  return bytes;
}

// Whether each copy has as many numbers of states as any other, on its device: equal parts of what is updated alike.
bool have_equal_states(const ParameterStore& store, const ParameterGroups& groups) {
  if (groups.optimizer().offload != "none" || store.all().empty()) return false;
  const ParameterUpdate first = groups.of(store.all().front());
  return std::all_of(store.buckets().begin(), store.buckets().end(),
                     [](const Bucket& bucket) { return bucket.owned.empty(); }) &&
         std::all_of(store.all().begin(), store.all().end(),
                     [&](const Parameter& parameter) { return groups.of(parameter).states() == first.states(); });
}

// Without shards copies hold the same, but for a number more or less of each parameter in a snapshot.
MemoryUse fullest_of(const PlayedReplica& played, const MemoryUse& own) {
  const ParameterStore& store = played.replica.store();
  const ParameterGroups groups(played.config);
  const bool equal = have_equal_states(store, groups);
  const GridShape& shape = played.job.grid.shape();
  const bool saves = saves_in_background(played.config);
  std::size_t states = played.replica.optimizer().state_bytes(), offloaded = 0, snapshot = 0;
  GridCoordinates copy = played.job.grid.at();
  for (copy.data = 0; store.sharded() && copy.data < shape.data; ++copy.data) {
    for (copy.context = 0; copy.context < shape.context; ++copy.context) {
      if (!equal) {
        const Optimizer::StateBytes bytes = Optimizer::state_bytes(store, shard_at(copy, shape), groups);
        states = std::max(states, bytes.kept);
        offloaded = std::max(offloaded, bytes.offloaded);
      }
      if (saves) snapshot = std::max(snapshot, saved_bytes(store, groups, copy, shape));
    }
  }
  MemoryUse fullest = own;
  if (!store.sharded()) return fullest;
  fullest.optimizer += states - played.replica.optimizer().state_bytes();
  fullest.add_offloaded(offloaded - played.replica.optimizer().offloaded_bytes(), played.config.optimizer);
  if (saves) {
    fullest.add_snapshot(snapshot - saved_bytes(store, groups, played.job.grid.at(), shape),
                         played.job.transport == TransportKind::host);
  }
  return fullest;
}

// Memory that the groups hold for their operations; NCCL manages its own.
std::vector<StagingPlan> plan_staging(CountingJob& job, const Replica& replica, std::size_t loss_terms) {
  if (job.transport == TransportKind::nccl) return std::vector<StagingPlan>(job.grid.groups().size());
  // With shards, copies have other sums over the other groups. All of a stage hold what the largest of them take.
  const ParameterStore& store = replica.store();
  Arena scratch("scratch"), numbers("numbers");
  const GridShape& shape = job.grid.shape();
  GridCoordinates copy = job.grid.at();
  for (copy.data = 0; store.sharded() && copy.data < shape.data; ++copy.data) {
    for (copy.context = 0; copy.context < shape.context; ++copy.context) {
      GradientReducer(job.grid, store, shard_at(copy, shape)).sum_other_groups(*job.ops, scratch);
    }
  }
  const std::int64_t most = std::max(kDecisionNumbers, static_cast<std::int64_t>(loss_terms));
  std::vector<StagingPlan> plans;
  for (Communicator* group : job.grid.groups()) {
    group->all_reduce(numbers.allocate("decision", {most}, DType::f64), kDecision);
    plans.push_back(group->staging_plan());
  }
  return plans;
}

}  // namespace

MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at) {
  return plan_memory(config, shape, at, planned_transport(config.run));
}

MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at,
                       TransportKind transport) {
  return plan_memory(config, shape, at, transport, family_of(config.model));
}

MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport,
                       const ModelFamily& family) {
  CountingJob job(config, shape, at, transport);
  Replica replica(config, job.grid, job.backend, family, Replica::Unlimited{});
  const PlayedReplica played{config, job, replica, family};
  const std::vector<double> counts(family.loss_terms(config).size(), 1);
  // A step finds the layers that the update before has begun to gather.
  if (replica.store().divides_weights()) replica.optimizer().set_values_from_master();
  const std::int64_t before = job.sums.bytes_sent;
  const StepSums sums = play_step(played, counts);
  const auto passes_bytes = static_cast<double>(job.passes.bytes_sent),
             sums_bytes = static_cast<double>(job.sums.bytes_sent - before);
  const double matmul_flops = job.ops->matmul_flops(), attention_flops = job.ops->attention_flops(),
               function_bytes = job.ops->function_bytes();
  Timers timers;
  replica.update(sums, {}, timers);
  const double update_flops = job.ops->matmul_flops() - matmul_flops;
  MemoryPlan plan = memory_of(played);
  plan.forward_and_backward_bytes = passes_bytes;
  plan.gradient_bytes = sums_bytes;
  plan.matmul_flops = matmul_flops;
  plan.attention_flops = attention_flops;
  plan.function_bytes = function_bytes;
  plan.update_flops = update_flops;
  return plan;
}

MemoryPlan memory_of(const PlayedReplica& played) {
  const auto& [config, job, replica, family] = played;
  play_evaluations(played);
  play_matrices(played);
  MemoryPlan plan;
  static_cast<MemoryUse&>(plan) = replica.used();
  plan.passes = replica.passes_needed();
  plan.activations = ExecutorMemory::sum(plan.passes.slots);
  plan.communication = ExecutorMemory::sum(plan.passes.gradient_buffers);
  plan.staging = plan_staging(job, replica, family.loss_terms(config).size());
  std::size_t& staging = job.transport == TransportKind::host ? plan.communication : plan.host;
  for (const StagingPlan& group : plan.staging) staging += group.bytes();
  const BatchLayout layout = batch_layout_of_rank(family, config);
  plan.batch = layout.bytes(micro_batches_per_step(config));
  if (!config.evaluation.tasks.empty()) {
    plan.batch += ScoringBatches::result_bytes(layout.sizes, micro_batches_per_step(config));
  }
  if (config.model.task_outputs > 0) {
    plan.batch += LabelScores::bytes(layout.sizes, config.model.task_classes(), micro_batches_per_step(config));
  }
  if (saves_in_background(config)) {
    plan.add_snapshot(snapshot_bytes(replica.owned_slices()), job.transport == TransportKind::host);
  }
  if (!config.run.trace_steps.empty()) {
    plan.add_trace(TraceRecorder::bytes_for(static_cast<std::size_t>(config.run.trace_events)),
                   job.transport == TransportKind::host);
  }
  plan.fullest = fullest_of(played, plan);
  plan.parameters = replica.store().parameter_elements();
  const GridShape& shape = job.grid.shape();
  const ParameterGroups groups(config);
  for (const Parameter& parameter : replica.store().all()) {
    // Other expert ranks have as many other experts.
    const int others = parameter.copies == CopyGroup::experts ? shape.expert : 1;
    if (!parameter.owner) continue;
    const Names states = groups.of(parameter).states();
    plan.stage_parameters += others * parameter.global_shape.elements();
    plan.stage_numbers += others * parameter.global_shape.elements() * static_cast<std::int64_t>(1 + states.size());
  }
  for (const FlatRange& range : replica.optimizer().owned()) plan.updated += range.count;
  for (const NamedState& state : replica.optimizer().all_states()) plan.updated_states += state.numbers.elements();
  return plan;
}

}  // namespace megatron
