// The distributed optimizer's new values are on their way still when the next forward begins, and nothing that a run
// does between two steps waits for them: seen from inside a run's forwards. A replica that is asked for its parameters
// does not wait either, unless it is told to.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "models/families/layers.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/loop_on_threads.h"
#include "support/watching_communicator.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const WatchingCommunicator& data_group(const ProcessGrid& grid) {
  return dynamic_cast<const WatchingCommunicator&>(grid.data());
}

struct Seen {
  std::vector<int> in_flight;  // at the first norm of every forward
  int after_gathers = 0;       // collectives started after gathers by then
};

}  // namespace

TEST_CASE("gathers: a forward begins while the last update's are in flight") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.model.layers = 4;
  config.model.hidden_size = 640;
  config.model.ffn_hidden_size = 2560;
  config.parallel.data = 2;
  config.parallel.pipeline = GENERATE(1, 2);
  config.optimizer.share = "state";
  config.train.global_batch_size = config.train.micro_batch_size * 2;  // one forward a step
  config.train.steps = 4;
  config.train.evaluate_every = 2;
  config.train.evaluate_steps = 1;
  config.data.train = make_corpus(folder);
  config.checkpoint.every_steps = 0;
  config.run.directory = folder.file("run");
  std::vector<Seen> seen(static_cast<std::size_t>(2 * config.parallel.pipeline));
  const LoopResult result = run_loop(
      config,
      [&](InjectedOps& ops, const ProcessGrid& grid) {
        // A stage's first norm reads its first layer's values and no others.
        const auto norms =
            static_cast<int>(
                layers_per_chunk(config.model, config.parallel).at(static_cast<std::size_t>(grid.at().pipeline))) *
                2 +
            (grid.last_stage() ? 1 : 0);
        ops.after_norm = [&, norms, calls = 0](const LayerNormForwardArgs&) mutable {
          if (calls++ % norms != 0) return;
          Seen& mine = seen[static_cast<std::size_t>(grid.world().rank())];
          mine.in_flight.push_back(data_group(grid).gathers_in_flight());
          mine.after_gathers = data_group(grid).started_after_gathers();
        };
      },
      [](Communicator& world) { return std::make_unique<WatchingCommunicator>(world); });
  for (const std::string& told : result.told) CHECK(told.empty());
  REQUIRE(result.metrics.size() >= 4);
  for (const Seen& mine : seen) {
    REQUIRE(mine.in_flight.size() >= 4);
    CHECK(mine.in_flight[0] == 0);  // nothing was updated yet
    CHECK(mine.in_flight[1] > 0);   // in the second step, and in the evaluation after it
    CHECK(mine.in_flight[2] > 0);
    CHECK(mine.after_gathers == 0);
  }
}

TEST_CASE("replica: only wait_for_values() waits for an update's gathers") {
  Config config = tiny_config();
  config.parallel.data = 2;
  config.optimizer.share = "state";
  run_as_threads(2, [&](Communicator& threads) {
    WatchingCommunicator world(threads);
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, grid.data().rank());
    Timers timers;
    const StepSums sums = replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
    replica.update(sums, {.learning_rate = 1e-3}, timers);
    const int in_flight = data_group(grid).gathers_in_flight();
    TrafficMeter meter;
    for (Communicator* group : grid.groups()) group->set_meter(&meter);
    const std::size_t parameters = replica.store().all().size();
    const std::size_t slices = replica.all_slices(true).size() + replica.owned_slices().size();
    const std::int64_t operations = meter.operations;
    const int left_in_flight = data_group(grid).gathers_in_flight();
    for (Communicator* group : grid.groups()) group->set_meter(nullptr);
    replica.wait_for_values();
    communicator_cases::expect(in_flight > 0, "no gathers");
    communicator_cases::expect(parameters > 0 && slices > 0, "{} parameters, {} slices", parameters, slices);
    communicator_cases::expect(operations == 0, "{} operations", operations);
    communicator_cases::expect(left_in_flight == in_flight, "{} of {} gathers left", left_in_flight, in_flight);
    communicator_cases::expect(data_group(grid).gathers_in_flight() == 0, "gathers after the wait");
  });
}
