// Errors of the kinds that parallel trainers have had, planted one by one into a tiny run: the check of collectives and
// of records names each, with the line that says what it is not. Those that only a comparison with one rank can see:
// training/loop/test_planted_defects.cpp. The table of both: docs/exactness.md.
#include <cmath>
#include <optional>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "distributed/parallel/gradient_reducer.h"
#include "distributed/parallel/group_check.h"
#include "distributed/parallel/record_check.h"
#include "parity/subjects.h"
#include "support/catch.h"
#include "support/planted_defects.h"
#include "support/planted_stages.h"
#include "support/require_error.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A rank's objects in a run, for errors of the code that calls them.
struct Rank {
  const ProcessGrid& grid;
  Replica& replica;
  Backend& backend;
};

/// An error and what the check says of it. What is not set is right.
struct Planted {
  std::string name;
  int tensor = 1, data = 1, pipeline = 1;
  std::vector<std::string> how = {};
  std::vector<std::string> found = {};  ///< parts of the message; empty: nothing is to be found
  CommunicationDefect communication = {};
  std::function<void(Parameter& parameter)> record = {};   ///< for each parameter, on every rank
  std::function<void(DefectiveOps& ops)> operations = {};  ///< the last rank's
  std::function<void(std::vector<double>& counts, int rank)> counts = {};
  std::function<void(const Rank& rank)> after_backward = {};
  AroundPass pass = {};          ///< every pass through a stage
  bool over_data_ranks = false;  ///< layers take the data ranks for tensor ranks
};

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

/// A grid whose tensor ranks are the data ranks of another.
class SwappedAxes {
 public:
  SwappedAxes(Communicator& world, const ProcessGrid& grid, bool sequence_parallel)
      : world_(world.split(0, grid.at().tensor * grid.shape().data + grid.at().data, "swapped")),
        grid_(*world_, {.tensor = grid.shape().data, .data = grid.shape().tensor}),
        check_(grid.shape(), world.rank(), grid_.tensor(), nullptr),
        region_(grid_, sequence_parallel) {
    grid_.tensor().set_check(&check_);
  }
  const TensorRegion& region() const { return region_; }

 private:
  std::unique_ptr<Communicator> world_;
  ProcessGrid grid_;
  GroupCheck check_;
  TensorRegion region_;
};

void train(const Planted& planted) {
  const Config config = config_of({planted.name, planted.tensor, planted.data, planted.pipeline, planted.how, {}, ""});
  const int ranks = planted.tensor * planted.data * planted.pipeline;
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
    TinyBatches batches(config, grid.data().rank());
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

/// The same run without the error passes.
void check_found(const Planted& planted) {
  require_error(ErrorKind::numerics, planted.found, [&] { train(planted); });
  train({.name = planted.name,
         .tensor = planted.tensor,
         .data = planted.data,
         .pipeline = planted.pipeline,
         .how = planted.how});
}

bool is_sum(DType type, const Tensor& values, Reduce reduce) {
  return values.dtype() == type && reduce == Reduce::sum;
}

/// Sums of f32 in the groups of this name that are left out.
CommunicationDefect without_sums(const std::string& group, DType type = DType::f32) {
  CommunicationDefect defect{.group = group};
  defect.forgets_all_reduce = [type](const Tensor& values, Reduce reduce) { return is_sum(type, values, reduce); };
  return defect;
}

CommunicationDefect scaled_sums(const std::string& group, float factor) {
  CommunicationDefect defect{.group = group};
  defect.after_all_reduce = [factor](Tensor values, int) {
    for (std::int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] *= factor;
  };
  return defect;
}

const std::vector<std::string> kSequence = {"parallel.sequence_parallel=true"};
const std::vector<std::string> kSharded = {"optimizer.distributed=true"};
const std::vector<std::string> kExpertRanks = {"moe.experts=4", "moe.every=2", "parallel.expert=2"};

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

}  // namespace

// ---- What is communicated -------------------------------------------------------------------------------------------

TEST_CASE("planted: shares of a layer that are not summed") {
  check_found({.name = "no sum",
               .tensor = 2,
               .found = {"src/models/layers/embedding.cpp:", "the result is not the sum of the ranks' shares"},
               .communication = without_sums("tensor")});
}

TEST_CASE("planted: a sum that is made twice too large") {
  check_found({.name = "twice",
               .tensor = 2,
               .found = {"src/models/layers/embedding.cpp:", "the result is not the sum"},
               .communication = scaled_sums("tensor", 2)});
}

TEST_CASE("planted: gradients that are not summed over the copies") {
  check_found({.name = "no sum of copies",
               .data = 2,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "gradients of a copy's samples"},
               .communication = without_sums("data")});
}

TEST_CASE("planted: gradients that are divided by the number of copies") {
  check_found({.name = "factor of the data size",
               .data = 2,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "off by"},
               .communication = scaled_sums("data", 0.5f)});
}

TEST_CASE("planted: a tied table that is not summed") {
  check_found({.name = "no sum of a tie",
               .pipeline = 2,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "a parameter that stages share"},
               .communication = without_sums("tie 0")});
}

TEST_CASE("planted: shared key heads that are not summed") {
  check_found({.name = "no sum of keys",
               .tensor = 2,
               .how = {"model.query_groups=1"},
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "keys and values that tensor ranks share"},
               .communication = without_sums("kv_replicas")});
}

TEST_CASE("planted: norms that are not summed under sequence parallelism") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor& values, Reduce reduce) {
    return is_sum(DType::f32, values, reduce) && values.shape().rank() == 1;  // the head's sums are a matrix
  };
  check_found({.name = "no sum of norms",
               .tensor = 2,
               .how = kSequence,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "tensor ranks each use a part of"},
               .communication = defect});
}

TEST_CASE("planted: a maximum of logits that is each rank's own") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor&, Reduce reduce) { return reduce == Reduce::maximum; };
  check_found({.name = "no maximum",
               .tensor = 2,
               .found = {"src/models/layers/vocabulary_loss.cpp:", "afterwards the ranks have different bits"},
               .communication = defect});
}

TEST_CASE("planted: a norm without the other ranks' gradients") {
  check_found({.name = "no sum of squares",
               .tensor = 2,
               .found = {"src/training/optimizer/update_step.cpp:", "squares and losses of a rank's part of the model"},
               .communication = without_sums("model", DType::f64)});
}

TEST_CASE("planted: stale weights, gathered into the wrong places") {
  check_found({.name = "stale weights",
               .data = 2,
               .how = kSharded,
               .found = {"src/distributed/parallel/parameter_all_gather.cpp:", "what arrived from rank"},
               .communication = {.group = "data", .swaps_gathered_parts = true}});
}

TEST_CASE("planted: a micro-batch that comes twice") {
  check_found({.name = "the same again",
               .pipeline = 2,
               .found = {"src/training/pipeline/executor.cpp:", "is not what it sent"},
               .communication = {.group = "pipeline", .repeats_received_messages = true}});
}

// ---- What records say -----------------------------------------------------------------------------------------------

TEST_CASE("planted: a norm that is taken for one that all ranks compute") {
  check_found({.name = "no sum by its record",
               .tensor = 2,
               .how = kSequence,
               .found = {"src/distributed/parallel/gradient_meanings.cpp:", "gradients that all tensor ranks have",
                         "not the same bits as rank 0"},
               .record = is_replica});
}

TEST_CASE("planted: a norm that is summed though all ranks compute it") {
  check_found({.name = "a sum by its record",
               .tensor = 2,
               .found = {"src/distributed/parallel/gradient_meanings.cpp:", "so these are no shares"},
               .record = is_partial});
}

TEST_CASE("planted: a parameter that norms count on every rank") {
  check_found({.name = "counted twice",
               .tensor = 2,
               .found = {"final_norm.weight: norms count it twice: ranks 0 and 1"},
               .record = [](Parameter& parameter) { parameter.owner |= parameter.name == "final_norm.weight"; }});
}

TEST_CASE("planted: a parameter that norms leave out") {
  check_found({.name = "not counted",
               .tensor = 2,
               .data = 2,
               .found = {"final_norm.weight: norms leave 32 of its 32 elements out"},
               .record = [](Parameter& parameter) { parameter.owner &= parameter.name != "final_norm.weight"; }});
}

TEST_CASE("planted: a table that is not tied") {
  check_found({.name = "no tie",
               .pipeline = 2,
               .found = {"embedding.word.weight: ranks 0 and 1 hold the same elements, and no sum"},
               .record = [](Parameter& parameter) { parameter.tie = kNone; }});
}

TEST_CASE("planted: key heads that are taken for split ones") {
  check_found({.name = "no shared keys",
               .tensor = 2,
               .how = {"model.query_groups=1"},
               .found = {"hold the same elements, and no sum of gradients connects them"},
               .record = [](Parameter& parameter) {
                 if (parameter.tensor == Placement::kv_replicated) parameter.tensor = Placement::split;
               }});
}

TEST_CASE("planted: experts that are summed over ranks with other experts") {
  check_found({.name = "experts over all copies",
               .data = 4,
               .how = kExpertRanks,
               .found = {"experts", "sums its gradient over group 'copies', in which rank 1 has"},
               .record = [](Parameter& parameter) { parameter.copies = CopyGroup::dense; }});
}

TEST_CASE("planted: a router that is summed over the copies of experts alone") {
  check_found({.name = "router over half of the copies",
               .data = 4,
               .how = kExpertRanks,
               .found = {"router.weight: ranks 0 and 1 hold the same elements, and no sum"},
               .record = [](Parameter& parameter) {
                 if (parameter.role == Role::router) parameter.copies = CopyGroup::experts;
               }});
}

// ---- What the code does ---------------------------------------------------------------------------------------------

TEST_CASE("planted: gradients that are summed twice") {
  check_found({.name = "twice",
               .data = 2,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "it is a sum over these ranks already"},
               .after_backward = sum_again});
  check_found({.name = "twice, sharded",
               .data = 2,
               .how = kSharded,
               .found = {"src/distributed/parallel/gradient_reducer.cpp:", "it is a sum over these ranks already"},
               .after_backward = sum_again});
}

TEST_CASE("planted: a mean over each rank's own targets") {
  check_found({.name = "local counts",
               .data = 2,
               .found = {"src/training/step/replica.cpp:", "counts that the loss is a mean over"},
               .counts = [](std::vector<double>& counts, int rank) { counts[0] = counts[0] / 2 + rank; }});
}

TEST_CASE("planted: a dropout mask of other samples on a tensor rank") {
  check_found(
      {.name = "another mask",
       .tensor = 2,
       .found = {"rows that all tensor ranks have", "rank 1 has not the same bits as rank 0"},
       .operations = [](DefectiveOps& ops) { ops.with_dropout = [](Dropout& dropout) { ++dropout.first_sample; }; }});
}

TEST_CASE("planted: layers that sum over the data ranks") {
  for (const std::vector<std::string>& how : {std::vector<std::string>(), kSequence}) {
    check_found({.name = "over the data ranks",
                 .tensor = 2,
                 .data = 2,
                 .how = how,
                 .found = {"src/models/layers/embedding.cpp:", how.empty() ? "all-reduce" : "reduce-scatter",
                           "embeddings of the words that a rank has", "they are of group 'tensor'"},
                 .over_data_ranks = true});
  }
}

TEST_CASE("planted: layers that read weights before they have arrived") {
  check_found({.name = "no wait",
               .data = 2,
               .how = kSharded,
               .found = {"the loss of step 2 is not finite"},
               .pass = [](Context& context, const std::function<void(Context&)>& play) {
                 PassSettings settings = context.pass;
                 settings.gathers = nullptr;
                 Context hasty = changed(context, settings, context.region);
                 play(hasty);
               }});
}
