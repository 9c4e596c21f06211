// Whether a node and its devices have what ranks are going to take, and that a rank which gets less than it needs tells
// all of them.
#include "distributed/process/node_memory.h"

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/separate_backend.h"
#include "support/small_corpus.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("node memory: a full device is refused and a silent one accepted") {
  const auto ask = [](std::optional<std::size_t> free) {
    run_as_threads(2, [&](Communicator& world) {
      SeparateDevice device(Copies::late);
      device.set_free_bytes(free);
      require_memory(world, "a host", device, {.device = 1000}, "do something");
    });
  };
  require_error(ErrorKind::configuration, {"the ranks on separate of a host need", "free there; do something"},
                [&] { ask(0); });
  require_error(ErrorKind::configuration, {"do something"}, [&] { ask(1999); });
  CHECK_NOTHROW(ask(2000));
  CHECK_NOTHROW(ask(std::nullopt));
}

TEST_CASE("node memory: memory that ranks pin for a device counts for their node") {
  const auto ask = [](std::size_t bytes, bool separate) {
    run_as_threads(2, [&](Communicator& world) {
      const Backend backend = separate ? make_separate_backend() : make_cpu_backend();
      require_memory(world, "a host", *backend.device, {.device = 1000, .host = bytes}, "do something");
    });
  };
  constexpr std::size_t kTooMuch = std::size_t{1} << 60;
  require_error(ErrorKind::configuration,
                {"the ranks on a host, in the host's own memory, need", "free there; start fewer", "checkpoint.async"},
                [&] { ask(kTooMuch, true); });
  require_error(ErrorKind::configuration, {"the ranks on a host need", "do something"}, [&] { ask(kTooMuch, false); });
  CHECK_NOTHROW(ask(1000, true));
}

TEST_CASE("node memory: one rank that cannot pin memory for saves ends all ranks") {
  const ShardFolder folder;
  Config given = tiny_config();
  given.data.train = make_corpus(folder);
  given.train.steps = 2;
  given.parallel.data = 2;
  given.checkpoint.async = true;
  given.checkpoint.every_steps = 1;
  given.run.device = "cuda";
  std::vector<std::string> told(2);
  run_as_threads(2, [&](Communicator& world) {
    Config config = given;
    Datasets datasets(config);
    const DataFacts facts = datasets.facts();
    resolve(config, world.size(), &facts);
    Backend backend = make_separate_backend();
    const std::unique_ptr<Communicator> transport = staged_transport(world, *backend.device);
    const ProcessGrid grid(world, grid_shape(config), transport.get());
    const MemoryPlan plan = plan_memory(config, grid_shape(config), grid.at());
    config.checkpoint.async = false;
    const std::size_t snapshot = plan.host - plan_memory(config, grid_shape(config), grid.at()).host;
    config.checkpoint.async = true;
    if (world.rank() == 1) dynamic_cast<SeparateDevice&>(*backend.device).refuse_pinned(snapshot);
    try {
      Trainer trainer(config, grid, backend, datasets);
    } catch (const Error& error) {
      internal_check(error.kind() == ErrorKind::configuration, "of another kind");
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  CHECK_THAT(told[0], Contains("pinned bytes"));
  CHECK(told[0] == told[1]);
}
