#include "parity/planted_runs.h"

#include <fstream>
#include <optional>
#include <regex>

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
        check_(grid.shape(), world.rank(), grid_.tensor(), nullptr, grid_.tensor()),
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

void train_planted(const Planted& planted) {
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
    CheckedCollectives checks(grid, *backend.device);
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
    checks.finish();
  });
}

bool is_sum(DType type, const Tensor& values, Reduce reduce) {
  return values.dtype() == type && reduce == Reduce::sum;
}

#ifdef __clang__
constexpr int kLinesBefore = 1;  // it names the line where a call ends
#else
constexpr int kLinesBefore = 0;  // GCC the one where it begins
#endif

/// The message begins with a place in the file and the function, and the file has the text there. A call may take two
/// lines.
void require_line(const std::string& message, const SourceLine& line) {
  INFO(message);
  std::smatch place;
  REQUIRE(std::regex_search(message, place, std::regex(line.file + ":([0-9]+) in " + line.function + ": ")));
  CHECK(place.position() == 0);
  std::ifstream file(MEGATRON_SOURCE "/" + line.file);
  std::string read, there;
  for (int number = 1, first = std::stoi(place[1]) - kLinesBefore; std::getline(file, read); ++number) {
    if (number >= first && number < first + 2) there += read;
  }
  CHECK_THAT(there, Contains(line.text));
}

}  // namespace

void require_found(const Planted& planted) {
  std::vector<std::string> parts = planted.found;
  if (!planted.line.file.empty()) parts.push_back(planted.line.file);
  std::string message;
  require_error(ErrorKind::numerics, parts, [&] {
    try {
      train_planted(planted);
    } catch (const Error& error) {
      message = error.what();
      throw;
    }
  });
  if (!planted.line.file.empty()) require_line(message, planted.line);
}

void check_found(const Planted& planted) {
  require_found(planted);
  train_planted({.name = planted.name,
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
