#include <algorithm>

#include "backend/ops/backends.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/parameter_all_gather.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/communicator_cases.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

void declare_vectors(ParameterStore& store) {
  for (const std::int64_t size : {37, 100, 33, 5, 61}) {
    Parameter parameter(Role::vector);
    parameter.name = std::to_string(size);
    parameter.global_shape = {size};
    parameter.box = {{0}, {size}};
    store.declare(parameter);
  }
}

}  // namespace

TEST_CASE("parameter all-gather: every part reaches all data ranks in each round") {
  const DType type = GENERATE(DType::f32, DType::bf16);
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(name_of(type), ranks);
  std::vector<std::vector<float>> got(static_cast<std::size_t>(ranks)), want(got.size());
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = ranks});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_vectors(store);
    store.allocate(*backend.device, type, {ranks}, 40);
    backend.ops->fill(store.values(), -1);
    CHECK_ON_RANK(store.buckets().size() == 3);
    ParameterAllGather gathers(grid, store);
    CHECK_ON_RANK(!gathers.in_flight());
    Owned<float> widened({store.flat_elements()});
    std::vector<float>& expected = want[static_cast<std::size_t>(world.rank())];
    for (int round = 1; round <= 2; ++round) {
      expected.clear();
      for (std::size_t bucket = 0; bucket < store.buckets().size(); ++bucket) {
        for (int rank = 0; rank < ranks; ++rank) {
          const FlatRange part = store.part_of(bucket, {rank});
          const auto value = static_cast<float>(round * 100 + 10 * static_cast<int>(bucket) + rank);
          expected.insert(expected.end(), static_cast<std::size_t>(part.count), value);
          if (rank == world.rank()) {
            backend.ops->fill(store.values().slice(0, part.first, part.count), static_cast<double>(value));
          }
        }
        gathers.start(bucket);
        gathers.progress();
      }
      if (round == 1) {
        // In pieces, as a forward does; what was asked for before costs nothing.
        for (const Parameter& parameter : store.all()) gathers.wait_for(parameter.index);
        CHECK_ON_RANK(!gathers.in_flight());
        gathers.wait_for(0);
      } else {
        gathers.finish();
      }
      backend.ops->copy(store.values(), widened.tensor());
      CHECK_ON_RANK(widened.values() == expected);
    }
    got[static_cast<std::size_t>(world.rank())] = widened.copied_values();
    // The destructor waits for a round that was never asked for.
    for (std::size_t bucket = 0; bucket < store.buckets().size(); ++bucket) gathers.start(bucket);
    CHECK_ON_RANK(gathers.in_flight());
  });
  CHECK(got == want);
}

TEST_CASE("parameter all-gather: owners send whole matrices to all copies") {
  const int ranks = GENERATE(2, 3, 7);  // 7: more than there are matrices, which are sent one by one
  CAPTURE(ranks);
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = ranks});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (int i = 0; i < 6; ++i) {
      Parameter parameter(i % 3 == 2 ? Role::norm : Role::matrix);
      parameter.name = std::to_string(i);
      parameter.layer = i / 3;
      parameter.global_shape = parameter.box.extent = {5 + i, 7};
      parameter.box.offset = {0, 0};
      store.declare(parameter);
      if (parameter.role == Role::matrix) store.mark_matrix(i, 1);
    }
    store.allocate(*backend.device, DType::f32, {ranks}, 40);
    communicator_cases::expect(store.buckets()[0].equal_parts == (ranks < 7), "{} ranks", ranks);
    ParameterAllGather gathers(grid, store);
    for (int round = 1; round <= 2; ++round) {
      backend.ops->fill(store.values(), -1);
      const std::vector<FlatRange> owned = store.owned_by(gathers.shard());
      for (std::size_t bucket = 0; bucket < store.buckets().size(); ++bucket) {
        for (const Parameter& parameter : store.all()) {
          if (ParameterStore::parts_in(parameter, {owned[bucket]}).empty()) continue;
          backend.ops->fill(parameter.value, 10 * round + parameter.index);
        }
        gathers.start(bucket);
      }
      for (const Parameter& parameter : store.all()) {
        gathers.wait_for(parameter.index);
        const float* const values = parameter.value.as<float>();
        communicator_cases::expect(std::count(values, values + parameter.elements(),
                                              static_cast<float>(10 * round + parameter.index)) == parameter.elements(),
                                   "values of {}", parameter.name);
      }
      communicator_cases::expect(!gathers.in_flight(), "a bucket is left");
    }
  });
}

TEST_CASE("only what is asked for is waited for, in the order of the buffer") {
  CountingCommunicator world(0, 2);
  const ProcessGrid grid(world, {.data = 2});
  TrafficMeter meter;
  grid.data().set_meter(&meter);
  ParameterStore store;
  declare_vectors(store);
  store.allocate_sizing(DType::bf16, {2}, 40);
  ParameterAllGather gathers(grid, store);
  for (std::size_t bucket = 0; bucket < 3; ++bucket) gathers.start(bucket);
  CHECK(meter.operations == 3);
  CHECK(meter.bytes_sent == store.flat_elements());  // half of the elements, of two bytes
  gathers.wait_for(store.buckets()[2].first_parameter - 1);
  CHECK(gathers.in_flight());
  gathers.wait_for(store.buckets()[2].first_parameter);
  CHECK_FALSE(gathers.in_flight());
  grid.data().set_meter(nullptr);
}

TEST_CASE("without shards nothing is gathered") {
  CountingCommunicator world(0, 2);
  const ProcessGrid grid(world, {.data = 2});
  ParameterStore store;
  declare_vectors(store);
  store.allocate_sizing(DType::f32);
  ParameterAllGather gathers(grid, store);
  gathers.finish();
  CHECK_FALSE(gathers.in_flight());
}
