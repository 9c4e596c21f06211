// One rank of a training run, put together as a program does it: the data's facts, the resolved configuration, the
// grid, a CPU backend and the trainer.
#pragma once

#include "backend/ops/backends.h"
#include "config/rules/resolve.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

namespace megatron::test {

struct TrainerOnRank {
  /// Collective over `world`, which must outlive it.
  TrainerOnRank(const Config& given, Communicator& world)
      : config(given),
        datasets(config),
        grid(world, resolved_shape(world.size())),
        backend(make_cpu_backend()),
        trainer(config, grid, backend, datasets) {}

  Config config;
  Datasets datasets;
  ProcessGrid grid;
  Backend backend;
  Trainer trainer;

 private:
  GridShape resolved_shape(int ranks) {
    const DataFacts facts = datasets.facts();
    resolve(config, ranks, &facts);
    return grid_shape(config);
  }
};

}  // namespace megatron::test
