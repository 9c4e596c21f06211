// Learning rates and weight decays by the model's width: factors of every rule and role, and what they do to an update.
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Parameter of_role(Role role, Shape shape) {
  Parameter parameter(role);
  parameter.name = name_of(role);
  parameter.global_shape = shape;
  return parameter;
}

/// The factor of each role at four times the width, in the order of kRoles: hidden matrices first.
std::vector<double> factors_of(const OptimizerConfig& optimizer) {
  const ParameterGroups groups(optimizer, {}, 4);
  std::vector<double> factors;
  for (const RoleRow& row : kRoles) {
    const bool vector = row.role == Role::vector || row.role == Role::norm;
    factors.push_back(groups.of(of_role(row.role, vector ? Shape{8} : Shape{2, 8})).learning_rate_factor());
  }
  return factors;
}

/// Values of declare_all()'s parameters after three updates.
std::vector<float> trained(const ParameterGroups& groups, const UpdateSettings& settings) {
  Backend backend = make_test_backend();
  ParameterStore store;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    make_small(store, backend);
    Optimizer optimizer(store, groups, *backend.device, *backend.ops);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      set_gradients(store, step, 0.3);
      update(optimizer, backend, grid, settings);
    }
  });
  return copy_of(store.values());
}

OptimizerConfig with_decay(OptimizerConfig optimizer, double weight_decay) {
  optimizer.weight_decay = weight_decay;
  return optimizer;
}

}  // namespace

TEST_CASE("width: each rule's factors of the learning rate by role") {
  // matrix, embedding, head, vector, norm, router, task_head
  using Factors = std::vector<double>;
  CHECK(factors_of({.name = "adamw"}) == Factors{0.25, 1, 1, 1, 1, 0.25, 0.25});
  CHECK(factors_of({.name = "lion"}) == Factors{0.25, 1, 1, 1, 1, 0.25, 0.25});
  CHECK(factors_of({.name = "sgd"}) == Factors{1, 4, 4, 4, 4, 0.25, 0.25});
  CHECK(factors_of({.name = "muon"}) == Factors{1, 1, 1, 1, 1, 0.25, 0.25});
  CHECK(factors_of({.name = "muon", .muon_scale = "match_adam_rms"}) == Factors{0.5, 1, 1, 1, 1, 0.25, 0.25});
}

TEST_CASE("width: a parameter of fixed size has the base's rate") {
  Parameter bias = of_role(Role::vector, {8});
  bias.fixed_size = true;
  CHECK(ParameterGroups({.name = "sgd"}, {}, 4).of(bias).learning_rate_factor() == 1);
}

TEST_CASE("width: a group's factor and rule compose with the width's") {
  ParameterGroupConfig half{.roles = {"matrix"}, .names = {}, .learning_rate_factor = 0.5};
  ParameterGroupConfig sgd{.roles = {"vector"}, .names = {}, .learning_rate_factor = 3, .keys = {"name"}};
  sgd.values.name = "sgd";
  const ParameterGroups groups({.name = "adamw"}, {half, sgd}, 4);
  CHECK(groups.of(of_role(Role::matrix, {8, 8})).learning_rate_factor() == 0.125);
  CHECK(groups.of(of_role(Role::vector, {8})).learning_rate_factor() == 12);
  CHECK(groups.of(of_role(Role::norm, {8})).learning_rate_factor() == 1);
}

TEST_CASE("width: rate times decay is the same at every width") {
  const Parameter matrix = of_role(Role::matrix, {8, 8}), table = of_role(Role::embedding, {8, 8});
  for (const char* rule : {"adamw", "lion", "sgd", "muon"}) {
    CAPTURE(rule);
    const ParameterGroups groups({.name = rule, .weight_decay = 0.1}, {}, 4);
    for (const Parameter* parameter : {&matrix, &table}) {
      const ParameterUpdate how = groups.of(*parameter);
      CHECK(how.learning_rate_factor() * how.weight_decay(0.1, 0.05) == Approx(0.05).epsilon(1e-12));
    }
  }
}

TEST_CASE("width: a wider model's update is one at its own rate and decay") {
  ParameterGroupConfig own{.roles = {"matrix"}, .names = {}, .learning_rate_factor = 0.25, .keys = {"weight_decay"}};
  own.values.weight_decay = 4 * kUpdate.weight_decay;
  const OptimizerConfig plain = with_decay(kSettings, kUpdate.weight_decay);
  const std::vector<float> wide = trained({plain, {}, 4}, kUpdate);
  CHECK(wide == trained({plain, {own}}, kUpdate));
  CHECK_FALSE(wide == trained(plain, kUpdate));
  CHECK(trained({plain, {}, 1}, kUpdate) == trained(plain, kUpdate));
}
