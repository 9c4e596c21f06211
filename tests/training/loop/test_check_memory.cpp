// Memory that --verify counts for its check of collectives, against what a checked step takes of a device.
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/separate_backend.h"
#include "support/small_corpus.h"
#include "training/loop/verify_layout.h"
#include "training/step/check_plan.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Two checked steps of a rank on its device: what the second takes of it for its time is what was planned.
void require_planned(const Config& wanted, Communicator& world) {
  Config config = wanted;
  Datasets datasets(config);
  const DataFacts facts = datasets.facts();
  resolve(config, world.size(), &facts);
  Backend backend = make_separate_backend();
  auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
  const std::unique_ptr<Communicator> transport = staged_transport(world, device);
  const ProcessGrid grid(world, grid_shape(config), transport.get());
  CheckedCollectives checks(grid, device);
  Trainer trainer(config, grid, backend, datasets);
  trainer.train_step();
  device.start_most();
  trainer.train_step();  // starts with the gathers of the first one's update in flight
  trainer.check_replicas();
  checks.finish();
  const CheckPlan plan = plan_check(config, grid.shape(), grid.at(), TransportKind::staged);
  internal_check(device.most_bytes() - device.bytes() == plan.kept,
                 "a check keeps back another number of bytes than its plan says", device.most_bytes(), device.bytes(),
                 plan.kept);
  internal_check(plan.kept > 0 && plan.read > 0, "a plan without copies");
}

}  // namespace

TEST_CASE("check memory: a checked step keeps back what was planned") {
  const ShardFolder folder;
  Config sharded = small_run(folder, 1, 1), rows = small_run(folder, 2, 2);
  sharded.run.device = rows.run.device = "cuda";
  sharded.optimizer.share = "state";
  rows.parallel.sequence_parallel = true;
  const std::string rule = GENERATE("adamw", "muon");
  sharded.optimizer.name = rule;
  run_as_threads(2, [&](Communicator& world) { require_planned(sharded, world); });
  run_as_threads(4, [&](Communicator& world) { require_planned(rows, world); });
  rows.optimizer.share = "state";
  run_as_threads(8, [&](Communicator& world) { require_planned(rows, world); });
}

// Between what the layout needs without a check and what it needs with it.
TEST_CASE("check memory: --verify refuses what fits without the check alone") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.optimizer.share = "state";
  const auto verify_with = [&](bool check) {
    run_as_threads(2, [&](Communicator& world) {
      std::vector<std::string> warnings;
      const ResolvedRun run = agree_on_run(config, world, warnings);
      Backend backend = make_separate_backend();
      auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
      Config layout = run.config;
      layout.checkpoint.async = false;
      const MemoryPlan plan = plan_memory(layout, grid_shape(layout), coordinates_of(world.rank(), grid_shape(layout)),
                                          TransportKind::staged);
      device.set_free_bytes(2 * plan.total() + 64);  // both ranks are on one device
      std::unique_ptr<Communicator> transport = staged_transport(world, device);
      Compute compute{std::move(backend), TransportKind::staged, std::move(transport), ""};
      Log log(false);
      const RunEnvironment environment{.host = "node07", .version = "0", .job = {}};
      verify_layout_on(run.config, world, compute, *run.datasets, environment, log, check);
    });
  };
  verify_with(false);
  require_error(ErrorKind::configuration, {"the ranks on separate of node07 need", "verify the same layout"},
                [&] { verify_with(true); });
}
