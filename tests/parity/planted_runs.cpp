#include "parity/planted_runs.h"

#include <optional>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "distributed/parallel/gradient_reducer.h"
#include "distributed/parallel/group_check.h"
#include "distributed/parallel/record_check.h"
#include "parity/rows.h"
#include "support/require_error.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

namespace megatron::test {

namespace {

/// The context of a pass, with other settings and another region.
Context changed(const Context& context, const PassSettings& settings, const TensorRegion& region) {
  return {.ops = context.ops,
          .region = region,
          .saved = context.saved,
          .scratch = context.scratch,
          .micro_batch = context.micro_batch,
          .pass = settings,
          .weight_gradients = context.weight_gradients,
          .counts = context.counts,
          .results = context.results};
}

/// For the ranks of one stage of a grid: another, whose tensor ranks are the data ranks of that.
class SwappedAxes {
 public:
  SwappedAxes(Communicator& world, const ProcessGrid& grid, bool sequence_parallel)
      : stage_(world.split(grid.at().pipeline, grid.at().tensor * grid.shape().data + grid.at().data, "swapped")),
        grid_(*stage_, {.tensor = grid.shape().data, .data = grid.shape().tensor}),
        check_(grid.shape(), world.rank(), grid_.tensor(), nullptr),
        region_(grid_, sequence_parallel) {
    grid_.tensor().set_check(&check_);
  }
  const TensorRegion& region() const { return region_; }

 private:
  std::unique_ptr<Communicator> stage_;
  ProcessGrid grid_;
  GroupCheck check_;
  TensorRegion region_;
};

void train(const Planted& planted) {
  const Config config = config_of({planted.name, planted.tensor, planted.data, planted.pipeline, planted.how, {}, ""});
  const auto divided = static_cast<int>(config.parallel.context);
  const int ranks = planted.tensor * divided * planted.data * planted.pipeline;
  run_as_threads(ranks, [&](Communicator& threads) {
    Onset onset;
    DefectiveCommunicator world(threads, planted.communication, onset);
    const ProcessGrid grid(world, grid_shape(config));
    Backend cpu = make_cpu_backend();
    auto defective = std::make_unique<DefectiveOps>(std::move(cpu.ops), onset);
    if (planted.operations && world.rank() == ranks - 1) planted.operations(*defective);
    Backend backend(std::move(cpu.device), std::move(defective));
    const CheckedCollectives checks(grid, *backend.device);
    std::optional<SwappedAxes> swapped;
    AroundPass pass = planted.pass;
    if (planted.over_data_ranks) {
      swapped.emplace(world, grid, config.parallel.sequence_parallel);
      pass = [&](Context& context, const std::function<void(Context&)>& play) {
        Context other = changed(context, context.pass, swapped->region());
        play(other);
      };
    }
    const PlantedStages stages(config, grid, planted.record, pass);
    Replica replica(config, grid, backend, stages.family());
    check_records(grid, replica.store());
    check_shares(world, replica.owned_slices());
    TinyBatches batches(config, grid.data().rank(), grid.context().rank());
    Timers timers;
    for (int step = 1; step <= 2; ++step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      LossScaling loss = batches.loss();
      std::vector<double> counts(loss.counts.begin(), loss.counts.end());
      if (planted.counts) planted.counts(counts, world.rank());
      loss.counts = counts;
      const StepSums sums = replica.forward_backward(micro_batches, step, loss, timers);
      if (planted.after_backward) planted.after_backward({grid, replica, backend});
      const Replica::Update update = replica.update(sums, {.learning_rate = 1e-3}, timers);
      verify(!update.skipped, ErrorKind::numerics, "the loss of step {} is not finite", step);
    }
    replica.evaluate(batches.step(2), batches.loss().counts, timers);
    replica.parameter_norm(timers);
  });
}

bool is_sum(DType type, const Tensor& values, Reduce reduce) {
  return values.dtype() == type && reduce == Reduce::sum;
}

}  // namespace

void require_found(const Planted& planted) {
  require_error(ErrorKind::numerics, planted.found, [&] { train(planted); });
}

void check_found(const Planted& planted) {
  require_found(planted);
  train({.name = planted.name,
         .tensor = planted.tensor,
         .data = planted.data,
         .pipeline = planted.pipeline,
         .how = planted.how});
}

CommunicationDefect without_sums(const std::string& group, DType type) {
  CommunicationDefect defect{.group = group, .forgets_reduce_scatter = type == DType::f32};
  defect.forgets_all_reduce = [type](const Tensor& values, Reduce reduce) { return is_sum(type, values, reduce); };
  return defect;
}

CommunicationDefect scaled_sums(const std::string& group, float factor) {
  CommunicationDefect defect{.group = group};
  defect.after_sum = [factor](Tensor values, int) {
    for (std::int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] *= factor;
  };
  return defect;
}

void sum_again(const Rank& rank) {
  const Buffer memory(*rank.backend.device, std::size_t{1} << 20);
  Arena scratch("scratch", memory);
  GradientReducer(rank.grid, rank.replica.store()).finish(*rank.backend.ops, scratch);
}

void is_replica(Parameter& parameter) {
  if (parameter.role == Role::norm) parameter.tensor = Placement::replica;
}

void is_partial(Parameter& parameter) {
  if (parameter.role == Role::norm) parameter.tensor = Placement::partial;
}

void count_alone(std::vector<double>& counts, int rank) {
  counts[0] = counts[0] / 2 + rank;
}

void without_waiting(Context& context, const std::function<void(Context&)>& play) {
  PassSettings settings = context.pass;
  settings.gathers = nullptr;
  Context hasty = changed(context, settings, context.region);
  play(hasty);
}

}  // namespace megatron::test
