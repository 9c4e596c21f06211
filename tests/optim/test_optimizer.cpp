#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/philox.h"
#include "comm/thread_communicator.h"
#include "optim/optimizer.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr OptimizerSettings kSettings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip_norm = 1};
constexpr UpdateSettings kUpdate{.learning_rate = 1e-2, .weight_decay = 0.1};

Parameter parameter_of(const std::string& name, Shape shape, bool decay, bool counted = true) {
  Parameter parameter;
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.box.extent = parameter.box.offset = shape;
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  parameter.decay = decay;
  parameter.counted = counted;
  return parameter;
}

// Ranges with and without decay, gaps inside and between them, and a copy that another rank counts.
void declare_all(ParameterStore& store) {
  store.declare(parameter_of("matrix", {5, 7}, true));
  store.declare(parameter_of("second matrix", {3, 11}, true));
  store.declare(parameter_of("bias", {7}, false));
  store.declare(parameter_of("second bias", {3}, false), /*adjacent=*/true);
  store.declare(parameter_of("copy", {9}, false, /*counted=*/false));
  store.declare(parameter_of("last matrix", {1, 50}, true));
}

void set_gradients(const ParameterStore& store, std::uint64_t seed, double width) {
  for (const Parameter& parameter : store.all()) {
    const Owned<float> gradient = random_tensor({parameter.elements()}, seed ^ hash_name(parameter.name), width);
    std::copy(gradient.values().begin(), gradient.values().end(), parameter.gradient.as<float>());
  }
}

void set_values(const ParameterStore& store) {
  for (const Parameter& parameter : store.all()) {
    const Owned<float> value = random_tensor({parameter.elements()}, hash_name(parameter.name) + 1);
    std::copy(value.values().begin(), value.values().end(), parameter.value.as<float>());
  }
}

std::vector<float> copy_of(ConstTensor x) {
  return {x.as<float>(), x.as<float>() + x.elements()};
}

double as_float(double x) {
  return static_cast<double>(static_cast<float>(x));
}

/// AdamW in double, parameter by parameter.
struct Reference {
  struct State {
    std::vector<double> value, m, v;
  };
  std::vector<State> states;
  int step = 0;

  explicit Reference(const ParameterStore& store) {
    for (const Parameter& parameter : store.all()) {
      const std::vector<float> value = copy_of(parameter.value);
      const std::vector<double> zero(value.size());
      states.push_back({{value.begin(), value.end()}, zero, zero});
    }
  }

  static double norm(const ParameterStore& store) {
    double sum = 0;
    for (const Parameter& parameter : store.all()) {
      if (!parameter.counted) continue;
      for (const float g : copy_of(parameter.gradient)) sum += static_cast<double>(g) * static_cast<double>(g);
    }
    return std::sqrt(sum);
  }

  void update(const ParameterStore& store, double gradient_norm) {
    ++step;
    const double factor = std::min(1.0, kSettings.clip_norm / (gradient_norm + 1e-6));
    const double beta1 = as_float(kSettings.beta1), beta2 = as_float(kSettings.beta2);
    for (std::size_t k = 0; k < states.size(); ++k) {
      const Parameter& parameter = store.at(static_cast<int>(k));
      State& state = states[k];
      for (std::size_t i = 0; i < state.value.size(); ++i) {
        const double g = factor * static_cast<double>(parameter.gradient.as<float>()[i]);
        state.m[i] = beta1 * state.m[i] + (1 - beta1) * g;
        state.v[i] = beta2 * state.v[i] + (1 - beta2) * g * g;
        const double m_hat = state.m[i] / (1 - std::pow(beta1, step)), v_hat = state.v[i] / (1 - std::pow(beta2, step));
        const double decay = parameter.decay ? kUpdate.weight_decay : 0;
        state.value[i] -=
            kUpdate.learning_rate * (m_hat / (std::sqrt(v_hat) + kSettings.epsilon) + decay * state.value[i]);
      }
    }
  }
};

std::string difference(ConstTensor got, const std::vector<double>& want, double tolerance) {
  return test::difference(Owned<float>({got.elements()}, copy_of(got)), want, tolerance);
}

}  // namespace

TEST_CASE("AdamW follows its fp64 reference over clipped and unclipped steps, decay only where it belongs") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    store.initialize(*backend.ops, 1);
    set_values(store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    Reference reference(store);
    int clipped = 0;
    for (int step = 1; step <= 8; ++step) {
      CAPTURE(step);
      set_gradients(store, static_cast<std::uint64_t>(step), step % 2 == 0 ? 0.05 : 0.8);
      const double norm = Reference::norm(store);
      if (norm > kSettings.clip_norm) ++clipped;
      reference.update(store, norm);
      const Optimizer::Update update = optimizer.update(grid, kUpdate);
      CHECK(update.gradient_norm == Approx(norm).epsilon(1e-6));
      CHECK_FALSE(update.skipped);
      CHECK(optimizer.updates() == step);
      for (std::size_t k = 0; k < store.all().size(); ++k) {
        const Parameter& parameter = store.all()[k];
        INFO(parameter.name);
        CHECK(difference(parameter.value, reference.states[k].value, 2e-6) == "");
        CHECK(difference(optimizer.m().slice(0, parameter.first, parameter.elements()), reference.states[k].m, 2e-6) ==
              "");
        CHECK(difference(optimizer.v().slice(0, parameter.first, parameter.elements()), reference.states[k].v, 2e-6) ==
              "");
      }
    }
    CHECK(clipped == 4);

    // Gaps between the parameters are still zero.
    std::vector<bool> used(static_cast<std::size_t>(store.flat_elements()));
    for (const Parameter& parameter : store.all()) {
      std::fill_n(used.begin() + parameter.first, parameter.elements(), true);
    }
    for (std::int64_t i = 0; i < store.flat_elements(); ++i) {
      if (used[static_cast<std::size_t>(i)]) continue;
      CHECK(store.values().as<float>()[i] == 0);
      CHECK(optimizer.m().as<float>()[i] == 0);
    }
  });
}

TEST_CASE("moments and the update count carry on where they were put") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    store.initialize(*backend.ops, 1);
    set_values(store);
    Optimizer through(store, kSettings, *backend.device, *backend.ops);
    set_gradients(store, 1, 0.3);
    through.update(grid, kUpdate);
    const std::vector<float> values = copy_of(store.values());
    Optimizer resumed(store, kSettings, *backend.device, *backend.ops);
    backend.ops->copy(through.m(), resumed.m());
    backend.ops->copy(through.v(), resumed.v());
    resumed.set_updates(through.updates());
    set_gradients(store, 2, 0.3);
    through.update(grid, kUpdate);
    const std::vector<float> want = copy_of(store.values());
    std::copy(values.begin(), values.end(), store.values().as<float>());
    resumed.update(grid, kUpdate);
    CHECK(copy_of(store.values()) == want);
    CHECK(resumed.updates() == 2);
  });
}

namespace {

struct RankState {
  std::vector<float> values, m, v;
  std::vector<Optimizer::Update> updates;
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
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    store.initialize(*backend.ops, 1);
    set_values(store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    RankState& state = states[static_cast<std::size_t>(world.rank())];
    const auto snapshot = [&] {
      state.values = copy_of(store.values());
      state.m = copy_of(optimizer.m());
      state.v = copy_of(optimizer.v());
      state.count = optimizer.updates();
    };
    const auto seed = static_cast<std::uint64_t>(100 * world.rank());
    set_gradients(store, seed + 1, 0.3);
    state.updates.push_back(optimizer.update(grid, kUpdate));
    if (check_unchanged) {
      snapshot();
      const RankState before = state;
      set_gradients(store, seed + 2, 0.3);
      if (world.rank() == bad_rank) store.at(bad_parameter).gradient.as<float>()[1] = bad;
      state.updates.push_back(optimizer.update(grid, kUpdate));
      snapshot();
      same[static_cast<std::size_t>(world.rank())] = before == state ? 1 : 0;
    }
    set_gradients(store, seed + 3, 0.3);
    state.updates.push_back(optimizer.update(grid, kUpdate));
    snapshot();
  });
  unchanged.assign(same.begin(), same.end());
  return states;
}

}  // namespace

TEST_CASE("one number that is not finite on one rank makes all ranks of the model skip, as if the step had not been") {
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
    CHECK(std::isfinite(with[rank].updates[1].gradient_norm) == (bad_parameter == 4));
    CHECK_FALSE(with[rank].updates[2].skipped);
    CHECK(unchanged[rank]);
    CHECK(with[rank].count == 2);
    CHECK((with[rank] == without[rank]));
  }
}

TEST_CASE("the norm is the whole model's: counted parts of all tensor ranks and stages, the same on every rank") {
  std::vector<bool> unused;
  const std::vector<RankState> states = train_with(0, -1, false, unused);
  double square_sum = 0;
  for (int rank = 0; rank < kGrid.ranks(); ++rank) {
    const Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    set_gradients(store, static_cast<std::uint64_t>(100 * rank) + 1, 0.3);
    square_sum += std::pow(Reference::norm(store), 2);
  }
  for (const RankState& state : states) {
    CHECK(state.updates[0].gradient_norm == Approx(std::sqrt(square_sum)).epsilon(1e-6));
    CHECK(state.updates[0].gradient_norm == states[0].updates[0].gradient_norm);
  }
}

TEST_CASE("clip_norm 0 leaves gradients as they are") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    store.initialize(*backend.ops, 1);
    OptimizerSettings settings = kSettings;
    settings.clip_norm = 0;
    Optimizer optimizer(store, settings, *backend.device, *backend.ops);
    set_gradients(store, 1, 100);
    const Optimizer::Update update = optimizer.update(grid, kUpdate);
    CHECK(update.gradient_norm > 100);
    const float g = store.at(0).gradient.as<float>()[0];
    CHECK(static_cast<double>(optimizer.m().as<float>()[0]) ==
          Approx((1 - 0.9) * static_cast<double>(g)).epsilon(1e-5));
  });
}

TEST_CASE("scaled gradients with their loss scale are the update of the gradients themselves, bit for bit") {
  const auto train = [](double loss_scale, double width) {
    std::vector<float> values;
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      ParameterStore store;
      declare_all(store);
      store.allocate(*backend.device, DType::f32);
      store.initialize(*backend.ops, 1);
      set_values(store);
      Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        set_gradients(store, step, width);
        backend.ops->scale(store.gradients(), loss_scale);
        UpdateSettings settings = kUpdate;
        settings.loss_scale = loss_scale;
        const Optimizer::Update update = optimizer.update(grid, settings);
        backend.ops->scale(store.gradients(), 1 / loss_scale);
        CHECK(update.gradient_norm == Approx(Reference::norm(store)).epsilon(1e-6));
      }
      values = copy_of(store.values());
    });
    return values;
  };
  for (const double width : {0.05, 0.8}) CHECK(train(65536, width) == train(1, width));  // not clipped, clipped
}

TEST_CASE("16-bit values are the rounded master, and the master trains as f32 values do") {
  const DType type = GENERATE(DType::bf16, DType::f16);
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore wide, narrow;
    for (ParameterStore* store : {&wide, &narrow}) {
      for (const bool decay : {true, false}) {
        Parameter parameter = parameter_of(decay ? "matrix" : "vector", decay ? Shape{5, 7} : Shape{9}, decay);
        (decay ? parameter.initialization.deviation : parameter.initialization.constant) = 1;
        store->declare(parameter);
      }
      store->allocate(*backend.device, store == &wide ? DType::f32 : type);
    }
    Optimizer reference(wide, kSettings, *backend.device, *backend.ops);
    Optimizer optimizer(narrow, kSettings, *backend.device, *backend.ops);
    reference.initialize(7);
    optimizer.initialize(7);
    Owned<float> widened({narrow.flat_elements()}), rounded({narrow.flat_elements()});
    const Buffer memory(*backend.device, static_cast<std::size_t>(2 * narrow.flat_elements()));
    const Tensor expected = memory.tensor({narrow.flat_elements()}, type);
    CHECK(optimizer.state_bytes() == Optimizer::state_bytes(narrow, 0, kSettings));
    for (std::uint64_t step = 0; step <= 3; ++step) {
      CAPTURE(step);
      CHECK(copy_of(optimizer.state({0, narrow.flat_elements()}).master) == copy_of(wide.values()));
      backend.ops->copy(wide.values(), expected);
      backend.ops->copy(expected, rounded.tensor());
      backend.ops->copy(narrow.values(), widened.tensor());
      CHECK(widened == rounded);
      CHECK(copy_of(narrow.gradients()) == copy_of(wide.gradients()));
      set_gradients(wide, step, 0.3);
      set_gradients(narrow, step, 0.3);
      reference.update(grid, kUpdate);
      optimizer.update(grid, kUpdate);
    }
    CHECK_FALSE(widened.values()[0] == wide.values().as<float>()[0]);  // something was rounded
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
    Parameter copy = parameter_of("copy", {20, 1}, true, /*counted=*/false);
    copy.initialization.deviation = 1;
    store.declare(copy);
    store.allocate(*backend.device, type, distributed ? ranks : 1, 100);
    ParameterGathers gathers(grid, store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops, &gathers);
    optimizer.initialize(3);
    CHECK(optimizer.state_bytes() == Optimizer::state_bytes(store, grid.data().rank(), kSettings));
    if (distributed) {
      const std::int64_t tensors = type == DType::f32 ? 8 : 12;
      CHECK(optimizer.state_bytes() == static_cast<std::size_t>(tensors * store.flat_elements() / ranks) + 4 * 64);
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
      const Optimizer::Update update = optimizer.update(grid, kUpdate);
      store.gradients().as<float>()[element] = before;
      CHECK(update.skipped == (step == 3));
      if (world.rank() == 0) result.norms.push_back(update.gradient_norm);
    }
    CHECK(optimizer.updates() == 3);
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
        put(state.m, result.m);
        put(state.v, result.v);
      }
    }
  });
  return result;
}

}  // namespace

TEST_CASE("data ranks that share the state make the same updates, bit for bit, skipped steps included") {
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

TEST_CASE("SGD: momentum, L2 decay where it belongs, clipping, and no more memory than it needs") {
  for (const double momentum : {0.9, 0.0}) {
    CAPTURE(momentum);
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      ParameterStore store;
      declare_all(store);
      store.allocate(*backend.device, DType::f32);
      store.initialize(*backend.ops, 1);
      set_values(store);
      const OptimizerSettings settings{.rule = UpdateRule::sgd, .momentum = momentum, .clip_norm = 1};
      Optimizer optimizer(store, settings, *backend.device, *backend.ops);
      CHECK(optimizer.m().empty() == (momentum == 0));
      CHECK(optimizer.v().empty());
      const std::size_t one_moment = 4 * static_cast<std::size_t>(store.flat_elements());
      CHECK(optimizer.state_bytes() == (momentum == 0 ? 0 : one_moment) + 4 * 64);
      Reference reference(store);
      for (std::uint64_t step = 1; step <= 4; ++step) {
        set_gradients(store, step, step % 2 == 0 ? 0.05 : 0.8);
        const double norm = Reference::norm(store), factor = std::min(1.0, 1 / (norm + 1e-6));
        for (std::size_t k = 0; k < store.all().size(); ++k) {
          const Parameter& parameter = store.all()[k];
          for (std::int64_t i = 0; i < parameter.elements(); ++i) {
            double& value = reference.states[k].value[static_cast<std::size_t>(i)];
            double& m = reference.states[k].m[static_cast<std::size_t>(i)];
            m = as_float(momentum) * m + factor * static_cast<double>(parameter.gradient.as<float>()[i]) +
                (parameter.decay ? as_float(kUpdate.weight_decay) * value : 0);
            value -= as_float(kUpdate.learning_rate) * m;
          }
        }
        CHECK(optimizer.update(grid, kUpdate).gradient_norm == Approx(norm).epsilon(1e-6));
        for (std::size_t k = 0; k < store.all().size(); ++k) {
          CHECK(difference(store.all()[k].value, reference.states[k].value, 2e-6) == "");
        }
      }
      const std::vector<float> before = copy_of(store.values());
      store.gradients().as<float>()[0] = NAN;
      CHECK(optimizer.update(grid, kUpdate).skipped);
      CHECK(copy_of(store.values()) == before);
    });
  }
}
