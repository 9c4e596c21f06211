// The ranks of a model's grid, one after the other, without communication: what tests of a model's parameters have in
// common.
#pragma once

#include "distributed/comm/counting_communicator.h"
#include "models/families/family.h"

namespace megatron::test {

/// visit(store, chunks, coordinates) for every rank of tensor × pipeline; the store is declared, not allocated.
template <class Visit>
void for_each_rank(const Config& config, const Visit& visit) {
  const ParallelConfig& p = config.parallel;
  const GridShape shape{.tensor = static_cast<int>(p.tensor),
                        .pipeline = static_cast<int>(p.pipeline),
                        .ties = family_of(config.model).ties(config)};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    CountingCommunicator world(rank, shape.ranks());
    const ProcessGrid grid(world, shape);
    const TensorRegion region(grid, p.sequence_parallel);
    ParameterStore store;
    const Stages chunks = make_stages(config, grid, region, store);
    visit(store, chunks, grid.at());
  }
}

/// Elements of all parameters, each counted by its owner.
inline std::int64_t owned_parameters(const Config& config) {
  std::int64_t sum = 0;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    for (const Parameter& parameter : store.all()) sum += parameter.owner ? parameter.elements() : 0;
  });
  return sum;
}

}  // namespace megatron::test
