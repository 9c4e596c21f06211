#include "train/memory_plan.h"

#include <algorithm>

#include "checkpoint/background_save.h"
#include "comm/counting_communicator.h"
#include "ops/counting_device.h"
#include "train/replica.h"
#include "train/sequence_scores.h"

namespace megatron {

bool saves_in_background(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  return checkpoint.async && (checkpoint.every_steps > 0 || checkpoint.every_minutes > 0);
}

namespace {

// A micro-batch of the configured size without memory.
MicroBatch sizing_micro_batch(const BatchLayout& layout, Arena& arena) {
  return view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return arena.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
}

// The most numbers that ranks agree on outside of a step, but for the sums of an evaluation's losses: extremes of
// hashes, wishes to stop and save.
constexpr std::int64_t kDecisionNumbers = 4;

/// One rank of a job whose device, operations and communicators count.
struct CountingJob {
  CountingJob(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport)
      : world(rank_of(at, shape), shape.ranks()),
        tensors(rank_of(at, shape), shape.ranks(), "world", transport == TransportKind::staged),
        grid(world, shape, &tensors) {
    std::unique_ptr<CountingOps> counting = make_counting_ops(config.run);
    ops = counting.get();
    backend = Backend(std::make_unique<CountingDevice>(transport == TransportKind::host), std::move(counting));
    for (Communicator* group : {&grid.tensor(), &grid.pipeline()}) group->set_meter(&passes);
    for (Communicator* group : {&grid.copies(), &grid.kv_replicas()}) group->set_meter(&sums);
    for (int tie = 0; tie < grid.ties(); ++tie) grid.tie(tie).set_meter(&sums);
  }

  CountingCommunicator world, tensors;
  ProcessGrid grid;
  TrafficMeter passes, sums;  // of forward and backward; of gradients
  Backend backend;
  CountingOps* ops = nullptr;
};

// A training step of the largest size, with what it computes and moves.
void play_step(const Config& config, CountingJob& job, const ModelFamily& family, Replica& replica, MemoryPlan& plan) {
  Arena batch("batch");
  const std::vector<MicroBatch> micro_batches(static_cast<std::size_t>(micro_batch_counts(config).back()),
                                              sizing_micro_batch(family.batch_layout(config), batch));
  Timers timers;
  const std::vector<double> counts(family.loss_terms(config).size(), 1);
  replica.forward_backward(micro_batches, 1, {.counts = counts}, timers);
  replica.optimizer().set_values_from_master();  // the gathers of an update, without its sums of a few numbers
  plan.forward_and_backward_bytes = static_cast<double>(job.passes.bytes_sent);
  plan.gradient_bytes = static_cast<double>(job.sums.bytes_sent);
  plan.matmul_flops = job.ops->matmul_flops();
  plan.attention_flops = job.ops->attention_flops();
  replica.update({}, timers);
}

// What the groups hold for their operations. NCCL's memory is its own affair.
std::vector<StagingPlan> plan_staging(CountingJob& job, const Replica& replica, std::size_t loss_terms,
                                      TransportKind transport) {
  // With shards, copies have other sums over the other groups. All of a stage hold what the largest of them take.
  const ParameterStore& store = replica.store();
  Arena scratch("scratch"), numbers("numbers");
  for (int shard = 0; store.shards() > 1 && shard < store.shards(); ++shard) {
    GradientReducer(job.grid, store, shard).sum_other_groups(*job.ops, scratch);
  }
  const std::int64_t most = std::max(kDecisionNumbers, static_cast<std::int64_t>(loss_terms));
  std::vector<StagingPlan> plans;
  for (Communicator* group : job.grid.groups()) {
    group->all_reduce(numbers.allocate("decision", {most}, DType::f64));
    plans.push_back(transport == TransportKind::nccl ? StagingPlan{} : group->staging_plan());
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
  MemoryPlan plan;
  play_step(config, job, family, replica, plan);
  static_cast<MemoryUse&>(plan) = replica.used();
  plan.passes = replica.passes_needed();
  plan.activations = ExecutorMemory::sum(plan.passes.slots);
  plan.communication = ExecutorMemory::sum(plan.passes.gradient_buffers);
  plan.staging = plan_staging(job, replica, family.loss_terms(config).size(), transport);
  std::size_t& staging = transport == TransportKind::host ? plan.communication : plan.host;
  for (const StagingPlan& group : plan.staging) staging += group.bytes();
  const BatchLayout layout = family.batch_layout(config);
  plan.batch = layout.bytes(micro_batches_per_step(config));
  if (!config.evaluation.tasks.empty()) {
    plan.batch += ScoringBatches::result_bytes(layout.sizes, micro_batches_per_step(config));
  }
  if (saves_in_background(config)) {
    plan.add_snapshot(snapshot_bytes(replica.owned_slices()), transport == TransportKind::host);
  }
  plan.parameters = replica.store().parameter_elements();
  for (const Parameter& parameter : replica.store().all()) {
    if (parameter.owner) plan.stage_parameters += parameter.global_shape.elements();
  }
  return plan;
}

}  // namespace megatron
