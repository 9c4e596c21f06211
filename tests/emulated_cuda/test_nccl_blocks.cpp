// NCCL's share of a GPU, for the groups that process grids really make: each has its row, and all that can be in flight
// together fit.
#include <map>
#include <string>

#include "cuda/nccl_blocks.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/process_grid.h"
#include "support/catch.h"

using namespace megatron;

namespace {

/// By the name of a communicator of more than one rank; without the control group's, which moves no device's tensors.
using Blocks = std::map<std::string, int>;

Blocks blocks_of(const ProcessGrid& grid) {
  Blocks blocks;
  for (const Communicator* group : grid.groups()) {
    if (group->size() > 1 && group != &grid.control()) blocks[group->name()] = nccl_blocks(group->name());
  }
  return blocks;
}

template <class Check>
void on_every_rank(const GridShape& shape, const Check& check) {
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    CountingCommunicator world(rank, shape.ranks());
    check(ProcessGrid(world, shape));
  }
}

template <class Check>
void on_every_grid(const Check& check) {
  for (const int tensor : {1, 2, 4}) {
    for (const int context : {1, 2}) {
      for (const int data : {1, 2, 4}) {
        for (const int pipeline : {1, 2, 4}) {
          GridShape shape{.tensor = tensor, .context = context, .data = data, .pipeline = pipeline};
          if (pipeline > 1) shape.ties = {{0, pipeline - 1}, {0, 1}};
          for (shape.kv_replicas = 1; shape.kv_replicas <= tensor; shape.kv_replicas *= 2) {
            for (shape.expert = 1; shape.expert <= data; shape.expert *= 2) {
              for (shape.replicas = 1; shape.replicas * shape.expert <= data; shape.replicas *= 2) {
                on_every_rank(shape, check);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("NCCL's blocks: what groups get by their role") {
  const GridShape shape{
      .tensor = 4, .context = 2, .data = 4, .pipeline = 2, .kv_replicas = 2, .expert = 2, .ties = {{0, 1}}};
  on_every_rank(shape, [](const ProcessGrid& grid) {
    CHECK(blocks_of(grid) == Blocks{{"tensor", 32},
                                    {"context", 16},
                                    {"data", 16},
                                    {"copies", 16},
                                    {"expert", 32},
                                    {"expert copies", 16},
                                    {"pipeline", 2},
                                    {"model", 2},
                                    {"kv_replicas", 8},
                                    {"tie 0", 8}});
  });
  GridShape sets = shape;
  sets.replicas = 2;
  on_every_rank(sets, [](const ProcessGrid& grid) {
    const Blocks blocks = blocks_of(grid);
    CHECK(blocks.at("shards") == 16);
    CHECK(blocks.at("expert shards") == 8);
    CHECK(blocks.at("replicas") == 8);
  });
  CHECK(nccl_blocks("world") == 2);
  CHECK(nccl_blocks("reference") == 2);  // the world of a comparison
}

TEST_CASE("NCCL's blocks: every grid's groups have a row, and fit the GPU") {
  on_every_grid([](const ProcessGrid& grid) {
    int awaited = nccl_blocks(grid.world().name());
    for (const auto& [name, blocks] : blocks_of(grid)) {
      bool known = name.starts_with(kTieName);
      for (const NcclBlocks& row : kNcclBlocks) known = known || name == name_of(row.group);
      CHECK(known);
      awaited = std::max(awaited, blocks);
    }
    // The sums of gradients and gathers of weights that run next to the layers, and the messages of four directions.
    const auto blocks = [](const Communicator& dense, const Communicator& experts) {
      return nccl_blocks(dense.name()) + (&experts != &dense ? nccl_blocks(experts.name()) : 0);
    };
    const int whole = blocks(grid.copies(), grid.copies(CopyGroup::experts)),
              sets = blocks(grid.shards(), grid.shards(CopyGroup::experts)) + nccl_blocks(grid.replicas().name());
    CHECK(whole >= 16);
    const int background = grid.shape().replicas > 1 ? std::max(whole, sets) : whole;
    CHECK(awaited + background + kNcclMessageLanes * kNcclMessageBlocks < kFewestMultiprocessors);
  });
}
