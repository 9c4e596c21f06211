#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "base/core/philox.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/gradient_reducer.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// The first tie has a stage between its two, the second all stages.
const GridShape kGrid{.tensor = 4, .data = 2, .pipeline = 3, .kv_replicas = 2, .ties = {{0, 2}, {0, 1, 2}}};

Parameter parameter_of(const std::string& name, std::int64_t size, Placement tensor) {
  Parameter parameter(Role::vector);
  parameter.name = name;
  parameter.global_shape = {size};
  parameter.box = {{0}, {size}};
  parameter.tensor = tensor;
  return parameter;
}

Parameter matrix_of(const std::string& name, std::int64_t size, Placement tensor) {
  Parameter parameter = parameter_of(name, size, tensor);
  parameter.role = Role::matrix;
  parameter.global_shape = {size, 1};
  parameter.box = {{0, 0}, {size, 1}};
  return parameter;
}

// A cut matrix, a norm under sequence parallelism between two others, a table tied over first and last stage, and a
// table of all stages, if the grid has such ties. `tied_norm` is both: partial over the tensor ranks and tied. Keys and
// their bias have fewer parts than there are tensor ranks.
void declare_all(ParameterStore& store, const ProcessGrid& grid) {
  const auto tied = [&](Parameter parameter, int tie) {
    if (tie >= grid.ties()) return;
    const std::vector<int>& stages = grid.shape().ties[static_cast<std::size_t>(tie)];
    if (std::find(stages.begin(), stages.end(), grid.at().pipeline) == stages.end()) return;
    store.mark_tied(store.declare(std::move(parameter)), tie, grid.tie(tie).rank() == 0);
  };
  tied(matrix_of("table", 7, Placement::split), 0);
  store.declare(matrix_of("matrix", 33, Placement::split));
  store.declare(matrix_of("keys", 17, Placement::kv_replicated));
  store.declare(parameter_of("key bias", 3, Placement::kv_replicated));
  store.declare(parameter_of("norm", 5, Placement::partial));
  store.declare(parameter_of("bias", 6, Placement::replica));
  store.declare(parameter_of("another norm", 4, Placement::partial));
  tied(matrix_of("table of all", 9, Placement::split), 1);
  tied(parameter_of("tied norm", 3, Placement::partial), 0);
}

// A different whole number for every rank, small enough that every sum is exact.
float contribution(const GridCoordinates& at, const GridShape& shape, std::int64_t element) {
  return static_cast<float>((rank_of(at, shape) + 1) * (element % 13 + 1));
}

// The sum over those ranks that hold the parameter and whose gradients are parts of one.
float expected(const Parameter& parameter, const GridCoordinates& at, const GridShape& shape, std::int64_t element) {
  float sum = 0;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const GridCoordinates other = coordinates_of(rank, shape);
    const bool sharing = parameter.tensor == Placement::kv_replicated &&
                         other.tensor / shape.kv_replicas == at.tensor / shape.kv_replicas;
    if (other.tensor != at.tensor && parameter.tensor != Placement::partial && !sharing) continue;
    const bool tied = parameter.tie == 1 || (parameter.tie == 0 && (other.pipeline == 0 || other.pipeline == 2));
    if (other.pipeline != at.pipeline && !tied) continue;
    sum += contribution(other, shape, element);
  }
  return sum;
}

}  // namespace

TEST_CASE("gradient reducer: sums partial gradients over exactly their holders") {
  const int context = GENERATE(1, 2);
  GridShape shape = kGrid;
  shape.context = context;
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::set<std::string> seen;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store, grid);
    store.allocate(*backend.device, DType::f32);
    backend.ops->fill(store.gradients(), 0);
    for (const Parameter& parameter : store.all()) {
      for (std::int64_t i = 0; i < parameter.elements(); ++i) {
        parameter.gradient.as<float>()[i] = contribution(grid.at(), shape, i);
      }
    }
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    GradientReducer(grid, store).finish(*backend.ops, scratch);

    const std::lock_guard lock(mutex);
    if (scratch.used() != 0) wrong.push_back("the scratch arena is not as it was");
    for (const Parameter& parameter : store.all()) {
      seen.insert(parameter.name);
      for (std::int64_t i = 0; i < parameter.elements(); ++i) {
        const float got = parameter.gradient.as<float>()[i], want = expected(parameter, grid.at(), shape, i);
        if (got != want)
          wrong.push_back(fmt::format("rank {} {}[{}]: {} {}", world.rank(), parameter.name, i, got, want));
      }
    }
  });
  CHECK(wrong == std::vector<std::string>{});
  CHECK(seen.size() == 9);
}

TEST_CASE("copies have the same bits afterwards, whatever the numbers") {
  std::vector<std::vector<float>> norms(static_cast<std::size_t>(kGrid.ranks())), tables(norms.size());
  run_as_threads(kGrid.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, kGrid);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store, grid);
    store.allocate(*backend.device, DType::f32);
    const Owned<float> noise = random_tensor({store.flat_elements()}, static_cast<std::uint64_t>(world.rank()));
    backend.ops->copy(noise, store.gradients());
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    GradientReducer(grid, store).finish(*backend.ops, scratch);
    const auto me = static_cast<std::size_t>(world.rank());
    for (const Parameter& parameter : store.all()) {
      const float* gradient = parameter.gradient.as<float>();
      if (parameter.name == "norm") norms[me].assign(gradient, gradient + parameter.elements());
      if (parameter.name == "table") tables[me].assign(gradient, gradient + parameter.elements());
    }
  });
  for (int rank = 0; rank < kGrid.ranks(); ++rank) {
    const GridCoordinates at = coordinates_of(rank, kGrid);
    const auto me = static_cast<std::size_t>(rank);
    CHECK(norms[me] == norms[static_cast<std::size_t>(rank_of({.pipeline = at.pipeline}, kGrid))]);
    if (at.pipeline != 1) CHECK(tables[me] == tables[static_cast<std::size_t>(rank_of({.tensor = at.tensor}, kGrid))]);
  }
}

TEST_CASE("gradient reducer: a bucket's sums start once all of it is ready") {
  CountingCommunicator world(0, 2);
  const ProcessGrid grid(world, {.data = 2});
  TrafficMeter data;
  grid.data().set_meter(&data);
  ParameterStore store;
  const std::int64_t size = ParameterStore::kBucketElements;
  for (const char* name : {"first", "second", "third", "fourth"}) {
    store.declare(parameter_of(name, size, Placement::replica));
  }
  store.allocate_sizing(DType::f32);
  CountingOps ops;
  Arena scratch("scratch");
  GradientReducer sums(grid, store);
  for (int step = 0; step < 2; ++step) {
    data = {};
    const auto started_from = [&](int parameter) {
      sums.reduce_from(parameter);
      return data.operations;
    };
    CHECK(started_from(4) == 0);
    CHECK(started_from(3) == 1);
    CHECK(started_from(3) == 1);
    CHECK(started_from(1) == 3);
    sums.finish(ops, scratch);
    CHECK(data.operations == 4);
    CHECK(data.bytes_sent == 4 * size * 4);
  }
}

TEST_CASE("gradient reducer: counted memory and messages are those really taken") {
  CountingCommunicator world(0, kGrid.ranks());
  const ProcessGrid grid(world, kGrid);
  TrafficMeter tensor, data, ends, all_stages, sharing;
  grid.tensor().set_meter(&tensor);
  grid.data().set_meter(&data);
  grid.tie(0).set_meter(&ends);
  grid.tie(1).set_meter(&all_stages);
  grid.kv_replicas().set_meter(&sharing);
  ParameterStore store;
  declare_all(store, grid);
  store.allocate_sizing(DType::f32);
  CountingOps ops;
  Arena scratch("scratch");
  GradientReducer(grid, store).finish(ops, scratch);
  CHECK(scratch.high_water() == 64);  // 12 elements of three norms, packed
  CHECK(tensor.operations == 1);
  CHECK(tensor.bytes_sent == 12 * 4 * 3 / 2);  // round four ranks
  CHECK(data.operations == 1);
  CHECK(ends.operations == 2);
  CHECK(all_stages.operations == 1);
  CHECK(all_stages.bytes_sent == 9 * 4 * 2 * 2 / 3);
  CHECK(sharing.operations == 2);
  CHECK(sharing.bytes_sent == (17 + 3) * 4);
}

TEST_CASE("gradient reducer: with shards each copy gets its parts bit for bit") {
  const GridShape shape = GENERATE(GridShape{.data = 2, .pipeline = 2, .ties = {{0, 1}}}, GridShape{.data = 5},
                                   GridShape{.tensor = 2, .data = 3, .pipeline = 3, .ties = {{0, 2}, {0, 1, 2}}},
                                   GridShape{.tensor = 2, .data = 4},
                                   GridShape{.context = 2, .data = 2, .pipeline = 3, .ties = {{0, 1}, {0, 1, 2}}},
                                   GridShape{.tensor = 2, .context = 3});
  const bool early = GENERATE(false, true);
  const bool matrices = GENERATE(false, true);  // owned as a whole, each bucket's parameters in another order
  CAPTURE(shape.tensor, shape.context, shape.data, shape.pipeline, early, matrices);
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::int64_t compared = 0, held = 0;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    const Buffer memory(*backend.device, 4096);
    const auto sum = [&](ParameterStore& store, Shards shards) {
      declare_all(store, grid);
      for (const Parameter& parameter : store.all()) {
        if (matrices && parameter.role == Role::matrix) store.mark_matrix(parameter.index, 1);
      }
      store.allocate(*backend.device, DType::f32, shards, 24);
      backend.ops->fill(store.gradients(), 0);
      for (const Parameter& parameter : store.all()) {
        const auto seed = static_cast<std::uint64_t>(world.rank() + 100) ^ hash_name(parameter.name);
        backend.ops->copy(random_tensor({parameter.elements()}, seed), parameter.gradient.view({parameter.elements()}));
      }
      Arena scratch("scratch", memory);
      GradientReducer sums(grid, store);
      if (early) sums.reduce_from(1);
      sums.finish(*backend.ops, scratch);
    };
    ParameterStore whole, cut;
    sum(whole, {});
    sum(cut, shards_of(shape));
    internal_check(matrices || cut.buckets().size() > 1, "one bucket shows little");
    const std::vector<FlatRange> owned = cut.owned_by(shard_at(grid.at(), shape));
    const std::lock_guard lock(mutex);
    for (std::size_t k = 0; k < cut.all().size(); ++k) {
      const Parameter& parameter = cut.all()[k];
      if (grid.at().tensor == 0 && grid.at().pipeline == 0 && grid.copies().rank() == 0) held += parameter.elements();
      for (const FlatRange& part : ParameterStore::parts_in(parameter, owned)) {
        for (std::int64_t i = part.first; i < part.end(); ++i) {
          const float got = cut.gradients().as<float>()[i];
          const float want = whole.all()[k].gradient.as<float>()[i - parameter.first];
          if (got != want) wrong.push_back(fmt::format("rank {} {}: {} {}", world.rank(), parameter.name, got, want));
          if (grid.at().tensor == 0 && grid.at().pipeline == 0) ++compared;
        }
      }
    }
  });
  CHECK(wrong == std::vector<std::string>{});
  CHECK(compared == held);  // the data ranks of one stage have all of it together
}
