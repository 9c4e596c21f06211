// Contents of a profile of a training step: every verb in its layer, every layer in its phase.
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "config/rules/resolve.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/small_corpus.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

void train_a_step(const Config& config) {
  run_as_threads(2, [&](Communicator& world) {
    Config own = config;
    Datasets datasets(own);
    const DataFacts facts = datasets.facts();
    resolve(own, world.size(), &facts);
    Compute compute = start_compute(own.run, own.precision.dtype(), world, "one host", world.rank());
    const ProcessGrid grid(world, grid_shape(own), compute.transport.get());
    Trainer trainer(own, grid, compute.backend, datasets);
    trainer.train_step();
  });
}

}  // namespace

TEST_CASE("profile: a profiler gets the names of phases and layers and verbs") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.model.layers = 2;
  config.parallel.tensor = 2;
  config.data.train = make_corpus(folder);
  config.train.steps = 1;
  config.run.device = "cuda";
  config.run.communication = "mpi";
  emulated_cuda::SeenRanges& seen = emulated_cuda::seen_ranges();
  seen.paths.clear();
  train_a_step(config);
  CHECK(seen.paths.empty());

  setenv("MEGATRON_NVTX", "1", 1);
  train_a_step(config);
  unsetenv("MEGATRON_NVTX");
  for (const char* path :
       {"forward 0", "forward 7/layer 0/matmul", "forward 0/layer 1/attention_forward",
        "forward 0/layer 1/communication/all-reduce", "forward 0/embedding/embedding_forward", "backward 0/head/matmul",
        "backward 7/layer 0/attention_backward", "backward 0/layer 1/matmul", "optimizer/adamw"}) {
    INFO(path);
    CHECK(seen.paths.contains(path));
  }
  CHECK(seen.open == 0);
  CHECK_FALSE(seen.paths.contains("matmul"));
}
