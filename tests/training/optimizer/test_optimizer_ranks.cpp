// Agreement of the ranks in an update, and the state that data ranks share.
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct RankState {
  std::vector<float> values, m, v;
  std::vector<UpdateResult> updates;
  std::int64_t count = 0;
  bool operator==(const RankState& other) const {
    return values == other.values && m == other.m && v == other.v && count == other.count;
  }
};

constexpr GridShape kGrid{.tensor = 2, .data = 1, .pipeline = 2};

/// Two good updates on every rank; between them, if `bad` is not 0, one with `bad` in the gradient of one parameter
/// of one rank.
std::vector<RankState> train_with(float bad, int bad_rank, bool check_unchanged, std::vector<bool>& unchanged,
                                  int bad_parameter = 3) {
  std::vector<RankState> states(static_cast<std::size_t>(kGrid.ranks()));
  std::vector<int> same(states.size());
  run_as_threads(kGrid.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, kGrid);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    RankState& state = states[static_cast<std::size_t>(world.rank())];
    const auto snapshot = [&] {
      state.values = copy_of(store.values());
      state.m = copy_of(state_of(optimizer, "m"));
      state.v = copy_of(state_of(optimizer, "v"));
      state.count = optimizer.updates();
    };
    const auto seed = static_cast<std::uint64_t>(100 * world.rank());
    set_gradients(store, seed + 1, 0.3);
    state.updates.push_back(update(optimizer, backend, grid, kUpdate));
    if (check_unchanged) {
      snapshot();
      const RankState before = state;
      set_gradients(store, seed + 2, 0.3);
      if (world.rank() == bad_rank) store.at(bad_parameter).gradient.as<float>()[1] = bad;
      state.updates.push_back(update(optimizer, backend, grid, kUpdate));
      snapshot();
      same[static_cast<std::size_t>(world.rank())] = before == state ? 1 : 0;
    }
    set_gradients(store, seed + 3, 0.3);
    state.updates.push_back(update(optimizer, backend, grid, kUpdate));
    snapshot();
  });
  unchanged.assign(same.begin(), same.end());
  return states;
}

}  // namespace

TEST_CASE("optimizer: one bad number on one rank makes the whole model skip") {
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity());
  const int bad_rank = GENERATE(0, 1, 3);
  const int bad_parameter = GENERATE(3, 4);  // one that is counted, and a copy, which is not in the norm
  std::vector<bool> unchanged;
  const std::vector<RankState> without = train_with(0, -1, false, unchanged);
  const std::vector<RankState> with = train_with(bad, bad_rank, true, unchanged, bad_parameter);
  for (std::size_t rank = 0; rank < with.size(); ++rank) {
    CAPTURE(bad, bad_rank, bad_parameter, rank);
    REQUIRE(with[rank].updates.size() == 3);
    CHECK_FALSE(with[rank].updates[0].skipped);
    CHECK(with[rank].updates[1].skipped);
    CHECK_FALSE(with[rank].updates[1].bad_loss);
    CHECK(std::isfinite(with[rank].updates[1].gradient_norm) == (bad_parameter == 4));
    CHECK_FALSE(with[rank].updates[2].skipped);
    CHECK(unchanged[rank]);
    CHECK(with[rank].count == 2);
    CHECK((with[rank] == without[rank]));
  }
}

TEST_CASE("optimizer: a bad loss on one rank is known on all and changes nothing") {
  constexpr GridShape shape{.tensor = 2, .data = 2, .pipeline = 2};
  const int bad_term = GENERATE(0, 1);
  for (int bad_rank = -1; bad_rank < shape.ranks(); ++bad_rank) {
    CAPTURE(bad_rank, bad_term);
    std::mutex mutex;
    run_as_threads(shape.ranks(), [&](Communicator& world) {
      const ProcessGrid grid(world, shape);
      Backend backend = make_cpu_backend();
      ParameterStore store;
      make_small(store, backend);
      set_gradients(store, 1, 0.3);
      Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
      const std::vector<float> before = copy_of(store.values());
      // Either of two terms may be the bad one.
      const double bad = world.rank() == bad_rank ? NAN : 3;
      const double sums[] = {bad_term == 0 ? bad : 3, bad_term == 1 ? bad : 3};
      const ConstTensor losses(sums, {2}, DType::f64);
      const UpdateResult result = update(optimizer, backend, grid, kUpdate, losses);
      const std::lock_guard lock(mutex);
      CHECK(result.bad_loss == (bad_rank >= 0));
      CHECK(result.skipped == (bad_rank >= 0));
      CHECK((copy_of(store.values()) == before) == (bad_rank >= 0));
    });
  }
}

namespace {

/// Something that every rank has, and its expert: one of two that data ranks share out.
void declare_with_expert(ParameterStore& store, const ProcessGrid& grid) {
  store.declare(parameter_of("matrix", {5, 7}, true));
  Parameter expert = parameter_of(fmt::format("expert {}", grid.expert().rank()), {9, 3}, true);
  expert.copies = CopyGroup::experts;
  store.declare(std::move(expert));
  store.declare(parameter_of("norm", {7}, false));
}

}  // namespace

TEST_CASE("optimizer: one bad number in one rank's experts makes all ranks skip") {
  const GridShape shape = GENERATE(GridShape{.tensor = 2, .data = 4, .expert = 2}, GridShape{.data = 2, .expert = 2},
                                   GridShape{.context = 2, .data = 2, .pipeline = 2, .expert = 2});
  const bool distributed = GENERATE(false, true);
  for (int bad_rank = -1; bad_rank < shape.ranks(); ++bad_rank) {
    CAPTURE(shape.tensor, shape.context, shape.data, shape.pipeline, distributed, bad_rank);
    std::vector<UpdateResult> results(static_cast<std::size_t>(shape.ranks()));
    std::vector<int> changed(results.size());
    run_as_threads(shape.ranks(), [&](Communicator& world) {
      const ProcessGrid grid(world, shape);
      Backend backend = make_cpu_backend();
      ParameterStore store;
      declare_with_expert(store, grid);
      store.allocate(*backend.device, DType::f32, distributed ? shards_of(shape) : Shards{});
      store.initialize(*backend.ops, 1);
      set_values(store);
      set_gradients(store, 1, 0.3);
      ParameterAllGather gathers(grid, store);
      Optimizer optimizer(store, kSettings, *backend.device, *backend.ops, &gathers);
      const std::vector<float> before = copy_of(store.values());
      if (world.rank() == bad_rank) {
        const std::vector<FlatRange> parts = ParameterStore::parts_in(store.at(1), optimizer.owned());
        store.gradients().as<float>()[parts.front().first] = NAN;
      }
      const auto me = static_cast<std::size_t>(world.rank());
      results[me] = update(optimizer, backend, grid, kUpdate);
      optimizer.wait_for_values();
      changed[me] = copy_of(store.values()) != before ? 1 : 0;
    });
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      CAPTURE(rank);
      CHECK(results[rank].skipped == (bad_rank >= 0));
      CHECK_FALSE(results[rank].bad_loss);
      CHECK((changed[rank] != 0) == (bad_rank < 0));
    }
  }
}

TEST_CASE("optimizer: experts cost one more one-number sum except with shards") {
  constexpr GridShape shape{.tensor = 2, .data = 4, .expert = 2};
  const bool distributed = GENERATE(false, true);
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_with_expert(store, grid);
    store.allocate(*backend.device, DType::f32, distributed ? shards_of(shape) : Shards{});
    store.initialize(*backend.ops, 1);
    ParameterAllGather gathers(grid, store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops, &gathers);
    UpdateStep step(optimizer, grid, 0, *backend.device, *backend.ops);
    TrafficMeter model, expert, copies;
    grid.model().set_meter(&model);
    grid.expert().set_meter(&expert);
    if (!distributed) grid.copies().set_meter(&copies);  // with shards it would count the gathers of values
    step.run(kUpdate, {});
    communicator_cases::expect(model.operations == 1 && expert.operations == (distributed ? 0 : 1) &&
                                   copies.operations == (distributed ? 0 : 1),
                               "{}, {} and {} collectives", model.operations, expert.operations, copies.operations);
    if (!distributed) communicator_cases::expect(expert.bytes_sent == 8, "{} bytes", expert.bytes_sent);
    optimizer.wait_for_values();
    for (Communicator* group : {&grid.model(), &grid.expert(), &grid.copies()}) group->set_meter(nullptr);
  });
}

TEST_CASE("optimizer: the norm is the whole model's and the same on every rank") {
  std::vector<bool> unused;
  const std::vector<RankState> states = train_with(0, -1, false, unused);
  double square_sum = 0;
  for (int rank = 0; rank < kGrid.ranks(); ++rank) {
    const Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    set_gradients(store, static_cast<std::uint64_t>(100 * rank) + 1, 0.3);
    square_sum += std::pow(norm_of(store), 2);
  }
  for (const RankState& state : states) {
    CHECK(state.updates[0].gradient_norm == Approx(std::sqrt(square_sum)).epsilon(1e-6));
    CHECK(state.updates[0].gradient_norm == states[0].updates[0].gradient_norm);
  }
}

TEST_CASE("optimizer: one sum over the model and one over data ranks per update") {
  constexpr GridShape shape{.tensor = 2, .data = 2, .pipeline = 2};
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    set_gradients(store, 1, 0.3);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    TrafficMeter model, data;
    grid.model().set_meter(&model);
    grid.data().set_meter(&data);
    // Each tensor rank of a stage has its data rank's loss: one term on the last, one on the first, one on both.
    const double loss = 10.0 * grid.at().data + 3;
    const double sums[] = {grid.last_stage() ? loss : 0, grid.last_stage() ? 0 : 100 + loss, loss / 2};
    const ConstTensor losses(sums, {3}, DType::f64);
    const UpdateResult result = update(optimizer, backend, grid, kUpdate, losses);
    communicator_cases::expect(model.operations == 1 && data.operations == 1, "{} and {} collectives", model.operations,
                               data.operations);
    communicator_cases::expect(result.loss_sums == std::vector<double>{16, 216, 16}, "losses {}",
                               fmt::join(result.loss_sums, ", "));
    communicator_cases::expect(!result.skipped, "skipped");
  });
}

namespace {

/// Values, master and both moments of every parameter after three steps on data ranks, one of them skipped, put
/// together from what each rank owns; and the norms.
struct Assembled {
  std::map<std::string, std::vector<float>> values, master, m, v;
  std::vector<double> norms;
  bool operator==(const Assembled&) const = default;
};

Assembled train_on_data_ranks(int ranks, DType type, bool distributed) {
  Assembled result;
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = ranks});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (const auto& [name, size] : {std::pair("matrix", 35), std::pair("bias", 7), std::pair("long matrix", 130)}) {
      Parameter parameter = parameter_of(name, {size, 3}, size != 7);
      parameter.initialization.deviation = 1;
      store.declare(parameter);
    }
    Parameter copy = parameter_of("copy", {20, 1}, true, /*owner=*/false);
    copy.initialization.deviation = 1;
    store.declare(copy);
    store.allocate(*backend.device, type, {distributed ? ranks : 1}, 100);
    ParameterAllGather gathers(grid, store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops, &gathers);
    optimizer.initialize(3);
    communicator_cases::expect(
        optimizer.state_bytes() == Optimizer::state_bytes(store, {grid.data().rank()}, kSettings).kept, "rank {}",
        world.rank());
    if (distributed) {
      const std::int64_t tensors = type == DType::f32 ? 8 : 12;
      communicator_cases::expect(
          optimizer.state_bytes() == static_cast<std::size_t>(tensors * store.flat_elements() / ranks), "rank {}",
          world.rank());
    }
    for (std::uint64_t step = 1; step <= 4; ++step) {
      set_gradients(store, step, step == 3 ? 0.01 : 0.3);
      // Beyond what a rank owns gradients are anything.
      if (distributed) {
        std::vector<bool> mine(static_cast<std::size_t>(store.flat_elements()));
        for (const FlatRange& range : optimizer.owned()) std::fill_n(mine.begin() + range.first, range.count, true);
        for (std::int64_t i = 0; i < store.flat_elements(); ++i) {
          if (!mine[static_cast<std::size_t>(i)]) store.gradients().as<float>()[i] = NAN;
        }
      }
      // The third step is bad where the last rank alone can see it.
      const std::int64_t element = optimizer.owned().front().first;
      const bool bad = step == 3 && world.rank() == ranks - 1;
      const float before = store.gradients().as<float>()[element];
      if (bad || (step == 3 && !distributed)) store.gradients().as<float>()[element] = INFINITY;
      const UpdateResult updated = update(optimizer, backend, grid, kUpdate);
      store.gradients().as<float>()[element] = before;
      communicator_cases::expect(updated.skipped == (step == 3), "rank {}", world.rank());
      if (world.rank() == 0) result.norms.push_back(updated.gradient_norm);
    }
    communicator_cases::expect(optimizer.updates() == 3, "rank {}", world.rank());
    gathers.finish();
    Owned<float> widened({store.flat_elements()});
    backend.ops->copy(store.values(), widened.tensor());
    const std::lock_guard lock(mutex);
    for (const Parameter& parameter : store.all()) {
      const float* values = widened.values().data() + parameter.first;
      const std::vector<float> here(values, values + parameter.elements());
      const auto [at, first] = result.values.try_emplace(parameter.name, here);
      CHECK(at->second == here);  // the same on every rank
      for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
        const Optimizer::State state = optimizer.state(part);
        const auto put = [&](Tensor tensor, std::map<std::string, std::vector<float>>& into) {
          std::vector<float>& whole = into[parameter.name];
          whole.resize(static_cast<std::size_t>(parameter.elements()), NAN);
          std::copy_n(tensor.as<float>(), part.count, whole.begin() + (part.first - parameter.first));
        };
        put(state.master, result.master);
        put(numbers_of(state.states, "m"), result.m);
        put(numbers_of(state.states, "v"), result.v);
      }
    }
  });
  return result;
}

}  // namespace

TEST_CASE("optimizer: data ranks that share the state make the same updates") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  CAPTURE(name_of(type));
  Assembled whole = train_on_data_ranks(2, type, false);
  REQUIRE(whole.norms.size() == 4);
  CHECK_FALSE(std::isfinite(whole.norms[2]));
  whole.norms[2] = 0;
  for (const int ranks : {2, 3, 4, 7}) {
    CAPTURE(ranks);
    Assembled shared = train_on_data_ranks(ranks, type, true);
    CHECK_FALSE(std::isfinite(shared.norms[2]));
    shared.norms[2] = 0;
    CHECK(shared == whole);
  }
}
