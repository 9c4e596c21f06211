// optimizer.offload = "file" in a replica's steps. The bits of its updates: tests/training/optimizer/test_offload.cpp.
#include <chrono>
#include <thread>

#include "backend/ops/backends.h"
#include "base/system/mapped_file.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tiny_batches.h"
#include "support/tiny_training.h"
#include "support/unnamed_file.h"
#include "training/step/grid.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("offloaded file: the passes of a step read ahead for its update") {
  const TemporaryFolder folder(std::filesystem::current_path());  // more often a disk than where tests write
  Config config = tiny_config();
  config.optimizer.offload = "file";
  config.optimizer.offload_folder = folder.path();
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    const auto pass = [&](int step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      return replica.forward_backward(micro_batches, step, batches.loss(), timers);
    };
    replica.update(pass(1), {.learning_rate = 1e-3}, timers);
    const UnnamedFile file(folder.path());
    if (!file.drop()) {
      WARN("skipped: the cache of this file system cannot be filled and emptied");
      return;
    }
    pass(2);
    const auto blocks = [&] { return file.cached(MappedFile::kBlockBytes); };
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (blocks().front() != '1' && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    CHECK(blocks().front() == '1');
  });
}
