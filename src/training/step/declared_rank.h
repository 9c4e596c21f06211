// DeclaredRank: the parameters that one rank of a job holds, declared and laid out without memory, the rank being alone
// in its process. For questions that need no more: who saves what (saved_layout.h), what --parameters prints
// (planning/dry_run/parameter_table.h).
#pragma once

#include "distributed/comm/counting_communicator.h"
#include "distributed/parallel/parameter.h"
#include "distributed/parallel/tensor_region.h"
#include "models/families/family.h"
#include "training/optimizer/whole_matrix.h"
#include "training/step/grid.h"

namespace megatron {

struct DeclaredRank {
  /// Rank `rank` of the grid that the resolved `config` asks for.
  DeclaredRank(const Config& config, int rank)
      : world(rank, grid_shape(config).ranks()),
        grid(world, grid_shape(config)),
        region(grid, config.parallel.sequence_parallel) {
    make_stages(config, grid, region, store);
    mark_matrices(store, ParameterGroups(config), grid.shape().tensor);
    store.allocate_sizing(config.precision.dtype(), optimizer_shards(config, grid.shape()));
  }

  CountingCommunicator world;
  ProcessGrid grid;
  TensorRegion region;
  ParameterStore store;  ///< its views have addresses that must not be dereferenced
};

/// The configuration of one rank that trains the same model: a DeclaredRank of it has the whole model's parameters.
inline Config on_one_rank(Config config) {
  config.parallel = {};
  config.parallel.data = 1;
  return config;
}

}  // namespace megatron
