// Groups of parameters: each trains as with an optimizer of its own settings, in as few updates as there are settings.
#include "training/optimizer/parameter_groups.h"

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Training {
  Backend backend = make_cpu_backend();
  ParameterStore store;
  std::vector<std::int64_t> updated;  ///< elements of each update of a step
};

/// Ops that remember how many elements their updates have.
struct CountedUpdates : OpsDecorator {
  CountedUpdates(std::unique_ptr<Ops> inner, std::vector<std::int64_t>& seen)
      : OpsDecorator(std::move(inner)), elements(seen) {}
  void adamw(const AdamWArgs& args) override {
    elements.push_back(args.value.elements());
    OpsDecorator::adamw(args);
  }
  void pass(const char*, const std::function<void()>& call) override { call(); }
  std::vector<std::int64_t>& elements;
};

/// Three updates, all gradients as they are.
void train(Training& training, OptimizerConfig config, const std::vector<ParameterGroupConfig>& groups,
           const UpdateSettings& settings = kUpdate) {
  config.clip_grad_norm = 0;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    Device& device = *training.backend.device;
    CountedUpdates ops(std::move(training.backend.ops), training.updated);
    declare_all(training.store);
    training.store.allocate(device, DType::f32);
    training.store.initialize(ops, 1);
    set_values(training.store);
    Optimizer optimizer(training.store, {config, groups}, device, ops);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      set_gradients(training.store, step, 0.3);
      training.updated.clear();
      update(optimizer, device, ops, grid, settings);
    }
  });
}

std::vector<float> values_of(const Training& training, int index) {
  return copy_of(training.store.at(index).value);
}

ParameterGroupConfig group_of(std::vector<std::string> roles, std::vector<std::string> names) {
  return {.roles = std::move(roles), .names = std::move(names)};
}

OptimizerConfig with_decay(double weight_decay) {
  OptimizerConfig config = kSettings;
  config.weight_decay = weight_decay;
  return config;
}

constexpr int kMatrix = 0, kSecondMatrix = 1, kBias = 2, kLastMatrix = 5;

}  // namespace

TEST_CASE("parameter groups: each trains as with its settings alone") {
  ParameterGroupConfig second = group_of({"matrix"}, {"second*"});
  second.learning_rate_factor = 0.25;
  second.keys = {"betas", "epsilon", "weight_decay"};
  second.values = {.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-3, .weight_decay = 0.3};
  ParameterGroupConfig vectors = group_of({"vector"}, {});
  vectors.keys = {"weight_decay"};
  vectors.values.weight_decay = 0.05;  // for parameters that do not decay otherwise
  const OptimizerConfig plain = with_decay(kUpdate.weight_decay);
  Training grouped, defaults, of_second;
  train(grouped, plain, {second, vectors});
  train(defaults, plain, {});
  OptimizerConfig own = plain;
  own.beta1 = 0.5;
  own.beta2 = 0.75;
  own.epsilon = 1e-3;
  own.weight_decay = 0.3;
  train(of_second, own, {}, {.learning_rate = 0.25 * kUpdate.learning_rate, .weight_decay = 0.3});
  CHECK(values_of(grouped, kMatrix) == values_of(defaults, kMatrix));
  CHECK(values_of(grouped, kLastMatrix) == values_of(defaults, kLastMatrix));
  CHECK(values_of(grouped, kSecondMatrix) == values_of(of_second, kSecondMatrix));
  CHECK_FALSE(values_of(grouped, kSecondMatrix) == values_of(defaults, kSecondMatrix));
  // The bias as a matrix that decays by as much.
  Training decaying;
  ParameterGroupConfig all = group_of({}, {"*"});
  all.keys = {"weight_decay"};
  all.values.weight_decay = 0.05;
  train(decaying, plain, {all});
  CHECK(values_of(grouped, kBias) == values_of(decaying, kBias));
  CHECK_FALSE(values_of(grouped, kBias) == values_of(defaults, kBias));
}

TEST_CASE("parameter groups: the first that selects a parameter has it") {
  ParameterGroupConfig matrices = group_of({"matrix"}, {}), second = group_of({}, {"second*"});
  matrices.learning_rate_factor = 2;
  second.learning_rate_factor = 3;
  ParameterStore store;
  declare_all(store);
  const ParameterGroups groups(kSettings, {matrices, second});
  std::vector<std::size_t> indices;
  std::vector<double> factors;
  for (const Parameter& parameter : store.all()) {
    indices.push_back(groups.index_of(parameter));
    factors.push_back(groups.of(parameter).settings->learning_rate_factor);
  }
  CHECK(indices == std::vector<std::size_t>{0, 0, 2, 1, 2, 0});
  CHECK(factors == std::vector<double>{2, 2, 1, 3, 1, 2});
}

TEST_CASE("parameter groups: factor 0 leaves parameters as they are") {
  ParameterGroupConfig frozen = group_of({"matrix"}, {"last*"});
  frozen.learning_rate_factor = 0;
  Training training, defaults;
  train(training, kSettings, {frozen});
  train(defaults, kSettings, {});
  Backend backend = make_cpu_backend();
  ParameterStore fresh;
  make_small(fresh, backend);
  CHECK(values_of(training, kLastMatrix) == copy_of(fresh.at(kLastMatrix).value));
  CHECK(values_of(training, kMatrix) == values_of(defaults, kMatrix));
}

TEST_CASE("parameter groups: the same settings are the same bits and launches") {
  ParameterGroupConfig same = group_of({}, {"second*", "copy"});
  same.keys = {"betas", "epsilon", "name"};
  same.values = kSettings;
  ParameterGroupConfig decay = group_of({"matrix"}, {});
  decay.keys = {"weight_decay"};
  decay.values = with_decay(0.1);
  Training grouped, defaults;
  train(grouped, with_decay(0.1), {same, decay}, {.learning_rate = 1e-2, .weight_decay = 0.07});
  train(defaults, with_decay(0.1), {}, {.learning_rate = 1e-2, .weight_decay = 0.07});
  CHECK(copy_of(grouped.store.values()) == copy_of(defaults.store.values()));
  CHECK(grouped.updated == defaults.updated);
  CHECK(defaults.updated.size() == 3);  // matrices, vectors, the last matrix
  ParameterGroupConfig other = same;
  other.learning_rate_factor = 0.5;
  Training cut;
  train(cut, with_decay(0.1), {other});
  CHECK(cut.updated.size() == 5);  // the second bias and the copy are one part
}

TEST_CASE("parameter groups: weight decay follows the default's schedule") {
  ParameterGroupConfig own = group_of({"matrix"}, {}), none = group_of({"vector"}, {});
  own.keys = none.keys = {"weight_decay"};
  own.values.weight_decay = 0.3;
  none.values.weight_decay = 0;
  ParameterStore store;
  declare_all(store);
  const ParameterGroups groups(with_decay(0.1), {own, none});
  const ParameterUpdate matrix = groups.of(store.at(kMatrix)), vector = groups.of(store.at(kBias));
  CHECK(matrix.weight_decay(0.1, 0.1) == 0.3);
  CHECK(matrix.weight_decay(0.1, 0.05) == Approx(0.15).epsilon(1e-12));
  CHECK(matrix.weight_decay(0.1, 0) == 0);
  CHECK(vector.weight_decay(0.1, 0.05) == 0);
  const ParameterGroups plain(with_decay(0));  // with a schedule that begins with none
  CHECK(plain.of(store.at(kMatrix)).weight_decay(0, 0.05) == 0.05);
  CHECK(plain.of(store.at(kBias)).weight_decay(0, 0.05) == 0);
  CHECK(ParameterGroups(with_decay(0), {own}).of(store.at(kMatrix)).weight_decay(0, 0) == 0.3);
}
