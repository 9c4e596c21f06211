// optimizer.name = "muon" on one rank: parameters of every role against an fp64 reference; which rule has which;
// memory. On layouts: tests/training/step/test_whole_matrices.cpp.
#include <cmath>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "training/optimizer/muon_reference.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct RoleWeight {
  const char* name;
  Role role;
  Shape shape;
};
const std::vector<RoleWeight> kRoleWeights = {
    {"table", Role::embedding, {13, 6}}, {"query", Role::matrix, {12, 6}},    {"bias", Role::vector, {12}},
    {"out", Role::matrix, {6, 18}},      {"norm", Role::norm, {6}},           {"square", Role::matrix, {6, 6}},
    {"router", Role::router, {4, 6}},    {"labels", Role::task_head, {3, 6}}, {"head", Role::head, {13, 6}}};

void declare_roles(ParameterStore& store) {
  for (const RoleWeight& weight : kRoleWeights) {
    Parameter parameter = parameter_of(weight.name, weight.shape, true);
    parameter.role = weight.role;
    store.declare(parameter);
  }
}

/// One parameter in double.
struct Numbers {
  std::vector<double> value, m, v, g;

  void adamw(const OptimizerConfig& config, double rate, double decay, int step) {
    const double beta1 = as_float(config.beta1), beta2 = as_float(config.beta2);
    for (std::size_t i = 0; i < value.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, step)), v_hat = v[i] / (1 - std::pow(beta2, step));
      value[i] -= rate * (m_hat / (std::sqrt(v_hat) + config.epsilon) + decay * value[i]);
    }
  }
  void muon(const OptimizerConfig& config, const Shape& shape, double rate, double decay) {
    const double beta = config.momentum_or_default();
    Matrix64 direction{shape[0], shape[1]};
    for (std::size_t i = 0; i < value.size(); ++i) {
      m[i] = beta * m[i] + (1 - beta) * g[i];
      direction.elements[i] = config.nesterov ? beta * m[i] + (1 - beta) * g[i] : m[i];
    }
    const Matrix64 update = zeroth_power(direction);
    const double out = static_cast<double>(shape[0]), in = static_cast<double>(shape[1]);
    const double scale =
        config.muon_scale == "spectral" ? std::sqrt(std::max(1.0, out / in)) : 0.2 * std::sqrt(std::max(out, in));
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] -= rate * (scale * update.elements[i] + decay * value[i]);
    }
  }
};

double relative_error(ConstTensor got, const std::vector<double>& want) {
  double squares = 0, error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got.as<float>()[i]) - want[i];
    squares += want[i] * want[i];
    error += difference * difference;
  }
  return std::sqrt(error / squares);
}

struct MuonRank {
  explicit MuonRank(Communicator& world) : grid(world, {}) {}

  ProcessGrid grid;
  Backend backend = make_cpu_backend();
  ParameterStore store;
  Buffer memory{*backend.device, 1 << 16};
  Arena scratch{"scratch", memory};
};

}  // namespace

TEST_CASE("muon: all roles follow their fp64 reference for 20 steps") {
  const OptimizerConfig config =
      GENERATE(OptimizerConfig{.name = "muon", .adamw_learning_rate_factor = 0.25},
               OptimizerConfig{.name = "muon", .momentum = 0.75, .nesterov = false, .muon_scale = "match_adam_rms"},
               OptimizerConfig{.name = "muon", .momentum = 0});
  CAPTURE(config.momentum_or_default(), config.nesterov, config.muon_scale);
  run_as_threads(1, [&](Communicator& world) {
    MuonRank rank(world);
    ParameterStore& store = rank.store;
    declare_roles(store);
    store.allocate(*rank.backend.device, DType::f32);
    rank.backend.ops->fill(store.values(), 0);
    rank.backend.ops->fill(store.gradients(), 0);
    set_values(store);
    ParameterAllGather gathers(rank.grid, store);
    Optimizer optimizer(store, config, *rank.backend.device, *rank.backend.ops, &gathers, &rank.scratch);
    std::vector<Numbers> numbers;
    for (const Parameter& parameter : store.all()) {
      const std::vector<float> value = copy_of(parameter.value);
      const std::vector<double> zero(value.size());
      numbers.push_back({{value.begin(), value.end()}, zero, zero, zero});
    }
    for (int step = 1; step <= 20; ++step) {
      CAPTURE(step);
      set_gradients(store, static_cast<std::uint64_t>(step), step % 3 == 0 ? 0.01 : 0.3);
      const std::vector<float> gradients = copy_of(store.gradients());
      const double rate = 0.02, decay = step % 2 == 0 ? 0.1 : 0, norm = norm_of(store);
      const double factor = std::min(1.0, config.clip_grad_norm / (norm + 1e-6));
      for (std::size_t k = 0; k < numbers.size(); ++k) {
        const Parameter& parameter = store.all()[k];
        Numbers& each = numbers[k];
        for (std::size_t i = 0; i < each.g.size(); ++i) {
          each.g[i] = factor * static_cast<double>(parameter.gradient.as<float>()[i]);
        }
        const double its_decay = parameter.decays() ? decay : 0;
        if (parameter.role == Role::matrix) {
          each.muon(config, parameter.global_shape, rate, its_decay);
        } else {
          each.adamw(config, rate * config.adamw_learning_rate_factor, its_decay, step);
        }
      }
      CHECK_FALSE(update(optimizer, rank.backend, rank.grid, {.learning_rate = rate, .weight_decay = decay}).skipped);
      CHECK(copy_of(store.gradients()) == gradients);
    }
    CHECK(rank.scratch.used() == 0);
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const Parameter& parameter = store.all()[k];
      INFO(parameter.name);
      CHECK(relative_error(parameter.value, numbers[k].value) < 1e-6);
      const Optimizer::State state = optimizer.state({parameter.first, parameter.elements()});
      const bool muon = parameter.role == Role::matrix;
      REQUIRE(state.states.size() == (!muon ? 2 : config.momentum_or_default() == 0 ? 0 : 1));
      if (!state.states.empty()) CHECK(relative_error(numbers_of(state.states, "m"), numbers[k].m) < 1e-6);
      if (!muon) CHECK(relative_error(numbers_of(state.states, "v"), numbers[k].v) < 1e-6);
    }
  });
}

TEST_CASE("muon: a skipped step changes nothing") {
  run_as_threads(1, [](Communicator& world) {
    MuonRank rank(world);
    ParameterStore& store = rank.store;
    declare_roles(store);
    store.allocate(*rank.backend.device, DType::f32);
    rank.backend.ops->fill(store.values(), 0);
    rank.backend.ops->fill(store.gradients(), 0);
    set_values(store);
    ParameterAllGather gathers(rank.grid, store);
    Optimizer optimizer(store, OptimizerConfig{.name = "muon"}, *rank.backend.device, *rank.backend.ops, &gathers,
                        &rank.scratch);
    set_gradients(store, 1, 0.3);
    update(optimizer, rank.backend, rank.grid, kUpdate);
    const auto all = [&] {
      std::vector<std::vector<float>> numbers = {copy_of(store.values())};
      for (const NamedState& state : optimizer.all_states()) numbers.push_back(copy_of(state.numbers));
      return numbers;
    };
    const auto before = all();
    for (const char* name : {"query", "table"}) {
      set_gradients(store, 2, 0.3);
      for (const Parameter& parameter : store.all()) {
        if (parameter.name == name) parameter.gradient.as<float>()[1] = NAN;
      }
      CHECK(update(optimizer, rank.backend, rank.grid, kUpdate).skipped);
      CHECK(all() == before);
    }
  });
}

TEST_CASE("muon: a group of AdamW's has none of Muon's learning rate factor") {
  const auto trained = [](const OptimizerConfig& config, const std::vector<ParameterGroupConfig>& groups) {
    std::vector<float> values;
    run_as_threads(1, [&](Communicator& world) {
      MuonRank rank(world);
      declare_roles(rank.store);
      rank.store.allocate(*rank.backend.device, DType::f32);
      rank.backend.ops->fill(rank.store.values(), 0);
      set_values(rank.store);
      ParameterAllGather gathers(rank.grid, rank.store);
      Optimizer optimizer(rank.store, {config, groups}, *rank.backend.device, *rank.backend.ops, &gathers,
                          &rank.scratch);
      rank.backend.ops->fill(rank.store.gradients(), 0);
      set_gradients(rank.store, 1, 0.3);
      update(optimizer, rank.backend, rank.grid, kUpdate);
      values = copy_of(rank.store.values());
    });
    return values;
  };
  const OptimizerConfig muon{.name = "muon", .adamw_learning_rate_factor = 0.25};
  ParameterGroupConfig group;
  group.names = {"*"};
  group.keys = {"name"};
  group.values.name = "adamw";
  CHECK(trained(muon, {group}) == trained({}, {}));
  group.roles = {"matrix"};
  CHECK_FALSE(trained(muon, {group}) == trained({}, {}));
  // And the other way round: Muon for a group alone.
  group.values.name = "muon";
  group.keys.push_back("adamw_learning_rate_factor");
  group.values.adamw_learning_rate_factor = 0.5;
  CHECK(trained({}, {group}) == trained({.name = "muon"}, {}));
}

TEST_CASE("muon: one state of hidden matrices, two of all others") {
  ParameterStore store;
  declare_roles(store);
  store.allocate_sizing(DType::bf16);
  std::int64_t numbers = 0;
  for (const Parameter& parameter : store.all()) {
    const std::int64_t flat = (parameter.elements() + 15) / 16 * 16;  // a section has the gap up to the next one
    numbers += flat * (parameter.role == Role::matrix ? 2 : 3);
  }
  numbers -= 3 * 2;  // the last one ends without a gap
  CHECK(Optimizer::state_bytes(store, {}, OptimizerConfig{.name = "muon"}).kept ==
        static_cast<std::size_t>(4 * numbers));
}
