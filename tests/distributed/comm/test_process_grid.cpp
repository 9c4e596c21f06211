// The process grid: who is where, who talks to whom; on threads and counted.
#include <mutex>
#include <numeric>
#include <set>

#include "backend/tensor/memory.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/group_members.h"
#include "distributed/comm/process_grid.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"

using namespace megatron;

namespace {

// World ranks of a group's members, in the group's order.
std::vector<int> members(Communicator& group, int world_rank) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  group.all_gather(Tensor(&world_rank, {1}, DType::i32), communicator_cases::tensor_of(ranks), kPassedOn);
  return ranks;
}

using Groups = std::set<std::vector<int>>;
struct AllGroups {
  Groups tensor, context, data, copies, expert, expert_copies, control, pipeline, model, kv_replicas;
  Groups shards, expert_shards, replicas;
  std::vector<Groups> ties;
};

AllGroups groups_of(const GridShape& shape) {
  AllGroups all;
  all.ties.resize(shape.ties.size());
  std::mutex mutex;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    const auto collect = [&](Groups& groups, Communicator& group, const std::string& name) {
      communicator_cases::expect(group.name() == name, "group '{}' is called '{}'", name, group.name());
      const std::vector<int> ranks = members(group, world.rank());
      const std::lock_guard lock(mutex);
      groups.insert(ranks);
    };
    collect(all.tensor, grid.tensor(), "tensor");
    collect(all.context, grid.context(), "context");
    collect(all.data, grid.data(), "data");
    collect(all.copies, grid.copies(), shape.context == 1 ? "data" : "copies");
    collect(all.expert, grid.expert(), "expert");
    collect(all.expert_copies, grid.copies(CopyGroup::experts),
            shape.expert > 1 ? "expert copies" : grid.copies().name());
    const bool sets = shape.replicas > 1;
    collect(all.shards, grid.shards(), sets ? "shards" : grid.copies().name());
    collect(all.expert_shards, grid.shards(CopyGroup::experts),
            !sets              ? grid.copies(CopyGroup::experts).name()
            : shape.expert > 1 ? "expert shards"
                               : "shards");
    collect(all.replicas, grid.replicas(), "replicas");
    communicator_cases::expect(
        grid.shards().rank() == shard_rank(CopyGroup::dense, grid.at(), shape) &&
            grid.shards(CopyGroup::experts).rank() == shard_rank(CopyGroup::experts, grid.at(), shape) &&
            grid.replicas().rank() == replica_rank(grid.at(), shape),
        "a rank in a set of copies is not what the layout of shards says");
    collect(all.control, grid.control(), "control");
    collect(all.pipeline, grid.pipeline(), "pipeline");
    collect(all.model, grid.model(), "model");
    collect(all.kv_replicas, grid.kv_replicas(), "kv_replicas");
    for (int i = 0; i < grid.ties(); ++i) {
      collect(all.ties[static_cast<std::size_t>(i)], grid.tie(i), "tie " + std::to_string(i));
    }
    communicator_cases::expect(grid.tensor().rank() == grid.at().tensor && grid.data().rank() == grid.at().data &&
                                   grid.context().rank() == grid.at().context &&
                                   grid.pipeline().rank() == grid.at().pipeline,
                               "a rank in a group is not the coordinate on its axis");
    communicator_cases::expect((&grid.copies() == &grid.data()) == (shape.context == 1),
                               "copies are data ranks while there is no context axis, and the same communicator");
    communicator_cases::expect((&grid.copies(CopyGroup::experts) == &grid.copies()) == (shape.expert == 1),
                               "copies of experts are all copies while each rank has all experts");
    communicator_cases::expect(&grid.expert() != &grid.data(), "experts wait for sums of gradients");
    for (const CopyGroup group : {CopyGroup::dense, CopyGroup::experts}) {
      const Communicator& copies = grid.copies(group);
      communicator_cases::expect(copies.rank() == copy_rank(group, grid.at(), shape) &&
                                     copies.size() == shape.copies(group) &&
                                     grid.expert().rank() == grid.at().data % shape.expert,
                                 "another rank among the copies than by the coordinates");
    }
    std::vector<double> values = {static_cast<double>(world.rank()), -1.0 * world.rank(), 5};
    grid.agree(values);
    communicator_cases::expect(values == std::vector<double>{shape.ranks() - 1.0, 0, 5}, "agreed on other maxima");
    communicator_cases::expect(grid.agree(world.rank() == shape.ranks() / 2) && !grid.agree(false), "a flag is lost");
  });
  return all;
}

}  // namespace

TEST_CASE("coordinates and ranks are each other's inverse, tensor fastest") {
  for (const GridShape& shape : {GridShape{2, 1, 2, 4}, GridShape{1, 1, 1, 1}, GridShape{3, 2, 5, 2}}) {
    int rank = 0;
    for (int p = 0; p < shape.pipeline; ++p) {
      for (int d = 0; d < shape.data; ++d) {
        for (int c = 0; c < shape.context; ++c) {
          for (int t = 0; t < shape.tensor; ++t, ++rank) {
            const GridCoordinates at = coordinates_of(rank, shape);
            CHECK((at.tensor == t && at.context == c && at.data == d && at.pipeline == p));
            CHECK(rank_of(at, shape) == rank);
          }
        }
      }
    }
    CHECK_THROWS_AS(coordinates_of(rank, shape), Error);
  }
}

// The worked example of the published system's documentation: 16 ranks, tensor 2, pipeline 4, so data 2.
TEST_CASE("groups of 16 ranks, tensor 2, pipeline 4, data 2") {
  const AllGroups all = groups_of({.tensor = 2, .data = 2, .pipeline = 4, .ties = {{0, 3}, {0, 1, 3}, {2}}});
  const Groups alone = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};
  CHECK(all.tensor == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(all.data == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  CHECK(all.control == all.data);
  CHECK(all.copies == all.data);
  CHECK(all.context == alone);
  CHECK(all.kv_replicas == alone);
  CHECK(all.pipeline == Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  CHECK(all.model == Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}});
  CHECK(all.ties[0] == Groups{{0, 12}, {1, 13}, {2, 14}, {3, 15}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}});
  CHECK(all.ties[1] == Groups{{0, 4, 12}, {1, 5, 13}, {2, 6, 14}, {3, 7, 15}, {8}, {9}, {10}, {11}});
  CHECK(all.ties[2] == alone);
}

TEST_CASE("process grid: groups of 16 ranks, tensor 4, context 2, data 2") {
  const AllGroups all = groups_of({.tensor = 4, .context = 2, .data = 2, .kv_replicas = 2});
  CHECK(all.tensor == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
  CHECK(all.context == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}});
  CHECK(all.data == Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
  CHECK(all.control == all.data);
  CHECK(all.copies == Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  CHECK(all.model == all.tensor);
  CHECK(all.kv_replicas == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
}

TEST_CASE("process grid: 16 ranks as tensor 2 context 2 data 2 pipeline 2") {
  const AllGroups all = groups_of({.tensor = 2, .context = 2, .data = 2, .pipeline = 2, .ties = {{0, 1}}});
  CHECK(all.tensor == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(all.context == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  CHECK(all.data == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}});
  CHECK(all.copies == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}});
  CHECK(all.pipeline == Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
  CHECK(all.model == Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}});
  CHECK(all.ties[0] == all.pipeline);
}

// The published example of groups of experts: 16 ranks, tensor 2, expert 4.
TEST_CASE("process grid: groups of 16 ranks, tensor 2, data 8, expert 4") {
  const AllGroups all = groups_of({.tensor = 2, .data = 8, .expert = 4});
  CHECK(all.expert == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}});
  CHECK(all.expert_copies == Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
  CHECK(all.copies == Groups{{0, 2, 4, 6, 8, 10, 12, 14}, {1, 3, 5, 7, 9, 11, 13, 15}});
  CHECK(all.data == all.copies);
}

TEST_CASE("process grid: 16 ranks as tensor 2 context 2 data 4 expert 2") {
  const AllGroups all = groups_of({.tensor = 2, .context = 2, .data = 4, .expert = 2});
  CHECK(all.expert == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}});
  CHECK(all.expert_copies == Groups{{0, 2, 8, 10}, {1, 3, 9, 11}, {4, 6, 12, 14}, {5, 7, 13, 15}});
  CHECK(all.copies == Groups{{0, 2, 4, 6, 8, 10, 12, 14}, {1, 3, 5, 7, 9, 11, 13, 15}});
}

TEST_CASE("process grid: 16 ranks as context 2 data 4 pipeline 2 expert 4") {
  const AllGroups all = groups_of({.context = 2, .data = 4, .pipeline = 2, .expert = 4});
  CHECK(all.expert == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}});
  CHECK(all.expert_copies == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(all.model == Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
}

TEST_CASE("process grid: sets of copies that share") {
  const AllGroups two = groups_of({.tensor = 2, .context = 2, .data = 4, .replicas = 2});
  CHECK(two.shards == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}});
  CHECK(two.expert_shards == two.shards);
  CHECK(two.replicas == Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}});
  const AllGroups experts = groups_of({.data = 8, .expert = 2, .replicas = 2});
  CHECK(experts.shards == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(experts.expert_copies == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(experts.expert_shards == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(experts.replicas == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const AllGroups one = groups_of({.data = 4, .expert = 2});
  CHECK(one.shards == one.copies);
  CHECK(one.expert_shards == one.expert_copies);
  CHECK(one.replicas == Groups{{0}, {1}, {2}, {3}});
}

TEST_CASE("process grid: members of groups have their ranks of the world") {
  const GridShape shape{.tensor = 2, .data = 2, .pipeline = 4, .ties = {{0, 3}}};
  CHECK(world_rank_of(shape, "pipeline", 5, 3) == 13);
  CHECK(world_rank_of(shape, "tensor", 5, 0) == 4);
  CHECK(world_rank_of(shape, "data", 5, 1) == 7);
  CHECK(world_rank_of(shape, "tie 0", 13, 0) == 1);
  CHECK(world_rank_of(shape, "tie 0", 5, 0) == 5);  // its stage is not tied
  CHECK(world_rank_of(shape, "world", 5, 9) == 9);
  CHECK_FALSE(world_rank_of(shape, "pipeline", 5, 4));
  CHECK_FALSE(world_rank_of(shape, "tie 1", 5, 0));
  CHECK_FALSE(world_rank_of(shape, "node", 5, 0));
  CHECK_FALSE(world_rank_of(shape, "pipeline", 16, 0));
}

TEST_CASE("process grid: ties are sets of stages that the pipeline has") {
  CountingCommunicator world(0, 3);
  const auto with = [&](std::vector<std::vector<int>> ties) {
    ProcessGrid(world, {.pipeline = 3, .ties = std::move(ties)});
  };
  CHECK_NOTHROW(with({{0, 2}, {1}, {0, 1, 2}}));
  CHECK_THROWS_AS(with({{}}), Error);
  CHECK_THROWS_AS(with({{0, 3}}), Error);
  CHECK_THROWS_AS(with({{-1, 2}}), Error);
  CHECK_THROWS_AS(with({{2, 0}}), Error);
  CHECK_THROWS_AS(with({{1, 1}}), Error);
  const ProcessGrid untied(world, {.pipeline = 3});
  CHECK_THROWS_AS(untied.tie(0), Error);
}

TEST_CASE("a grid must fit the world") {
  const CountingCommunicator counting(0, 6);
  auto& world = const_cast<CountingCommunicator&>(counting);
  CHECK_THROWS_WITH(ProcessGrid(world, {.tensor = 2, .data = 2}), Contains("needs 4 ranks, but this job has 6"));
  CHECK_THROWS_AS(ProcessGrid(world, {.tensor = 0, .data = 6}), Error);
  CHECK_THROWS_WITH(ProcessGrid(world, {.tensor = 2, .data = 3, .expert = 2}),
                    Contains("data 3 is not divisible by expert 2") && Contains("parallel.expert"));
  CHECK_THROWS_AS(ProcessGrid(world, {.data = 6, .expert = 0}), Error);
}

TEST_CASE("counting grid: sizes and ranks of the real one without memory") {
  const GridShape shape =
      GENERATE(GridShape{.tensor = 2, .context = 2, .data = 3, .pipeline = 4, .ties = {{0, 3}, {1, 2}}},
               GridShape{.tensor = 2, .context = 2, .data = 4, .pipeline = 2, .expert = 2});
  std::vector<std::vector<int>> real(static_cast<std::size_t>(shape.ranks()));
  const auto describe = [](const ProcessGrid& grid) {
    std::vector<int> numbers;
    for (const Communicator* group : grid.groups()) {
      numbers.push_back(group->rank());
      numbers.push_back(group->size());
    }
    return numbers;
  };
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    real[static_cast<std::size_t>(world.rank())] = describe(ProcessGrid(world, shape));
  });
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    CountingCommunicator world(rank, shape.ranks());
    CHECK(describe(ProcessGrid(world, shape)) == real[static_cast<std::size_t>(rank)]);
  }

  CountingCommunicator world(1023, 1024);
  const ProcessGrid grid(world, {.tensor = 8, .data = 8, .pipeline = 16});
  CHECK(grid.last_stage());
  TrafficMeter meter;
  grid.tensor().set_meter(&meter);
  Arena arena("sizing");
  const Tensor whole = arena.allocate("whole", {1LL << 40}, DType::f32),
               part = arena.allocate("part", {1LL << 37}, DType::f32);
  grid.tensor().all_reduce(whole, kPassedOn);
  CHECK(meter.bytes_sent == 2 * 7 * (1LL << 42) / 8);
  grid.tensor().all_gather(part, whole, kPassedOn);
  grid.tensor().reduce_scatter(whole, part, kPassedOn);
  CHECK(meter.bytes_sent == 4 * 7 * (1LL << 42) / 8);
  grid.tensor().all_to_all(whole, arena.allocate("received", {1LL << 40}, DType::f32), kPassedOn);
  CHECK(meter.bytes_sent == 5 * 7 * (1LL << 42) / 8);
  CHECK(meter.operations == 4);
  grid.pipeline().start_send(part, 3, 0, kPassedOn).wait();
  grid.pipeline().start_receive(part, 3, 0, kPassedOn).wait();
  grid.pipeline().broadcast(whole, 0, kPassedOn);
  world.barrier();
  CHECK(world.all_reduce_value(2.5, kPassedOn) == 2.5);
  CHECK(world.broadcast_text("own", 1023) == "own");
  CountingCommunicator alone(0, 1);  // a group of one copies, but not here
  alone.all_gather(part, part.slice(0, 0, 1LL << 37), kPassedOn);
  alone.reduce_scatter(part, whole.slice(0, 0, 1LL << 37), kPassedOn);
  alone.all_to_all(part, whole.slice(0, 0, 1LL << 37), kPassedOn);
  CHECK_THROWS_AS(world.split(0, 0, "x"), Error);
}

TEST_CASE("counting communicators pass the meter's formulas") {
  for (const int ranks : {1, 2, 4, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      CountingCommunicator world(rank, ranks);
      CHECK_NOTHROW(communicator_cases::meter_case(world));
    }
  }
}

TEST_CASE("process grid: every kind of group has a name, those without a row too") {
  CHECK(name_of(Group::tensor) == "tensor");
  CHECK(name_of(Group::kv_replicas) == "kv_replicas");
  CHECK(name_of(Group::tie) == "tie");
  CHECK(name_of(Group::world) == "world");
  CHECK(name_of(Group::any) == "any");
}
