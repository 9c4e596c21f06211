// The update's mathematics, on one rank; between ranks: test_optimizer_ranks.cpp.
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("moments and the update count carry on where they were put") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    Optimizer through(store, kSettings, *backend.device, *backend.ops);
    set_gradients(store, 1, 0.3);
    update(through, backend, grid, kUpdate);
    const std::vector<float> values = copy_of(store.values());
    Optimizer resumed(store, kSettings, *backend.device, *backend.ops);
    backend.ops->copy(state_of(through, "m"), state_of(resumed, "m"));
    backend.ops->copy(state_of(through, "v"), state_of(resumed, "v"));
    resumed.set_updates(through.updates());
    set_gradients(store, 2, 0.3);
    update(through, backend, grid, kUpdate);
    const std::vector<float> want = copy_of(store.values());
    std::copy(values.begin(), values.end(), store.values().as<float>());
    update(resumed, backend, grid, kUpdate);
    CHECK(copy_of(store.values()) == want);
    CHECK(resumed.updates() == 2);
  });
}

TEST_CASE("clip_norm 0 leaves gradients as they are") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    OptimizerConfig settings = kSettings;
    settings.clip_grad_norm = 0;
    Optimizer optimizer(store, settings, *backend.device, *backend.ops);
    set_gradients(store, 1, 100);
    const UpdateResult result = update(optimizer, backend, grid, kUpdate);
    CHECK(result.gradient_norm > 100);
    const float g = store.at(0).gradient.as<float>()[0];
    CHECK(static_cast<double>(state_of(optimizer, "m").as<float>()[0]) ==
          Approx((1 - 0.9) * static_cast<double>(g)).epsilon(1e-5));
  });
}

TEST_CASE("optimizer: scaled gradients with their scale give the same update") {
  const auto train = [](double loss_scale, double width) {
    std::vector<float> values;
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      ParameterStore store;
      make_small(store, backend);
      Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        set_gradients(store, step, width);
        backend.ops->scale(store.gradients(), loss_scale);
        UpdateSettings settings = kUpdate;
        settings.gradient_scale = loss_scale;
        const UpdateResult result = update(optimizer, backend, grid, settings);
        backend.ops->scale(store.gradients(), 1 / loss_scale);
        CHECK(result.gradient_norm == Approx(norm_of(store)).epsilon(1e-6));
      }
      values = copy_of(store.values());
    });
    return values;
  };
  for (const double width : {0.05, 0.8}) CHECK(train(65536, width) == train(1, width));  // not clipped, clipped
}

TEST_CASE("optimizer: 16-bit values are the rounded master that trains as f32") {
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
    CHECK(optimizer.state_bytes() == Optimizer::state_bytes(narrow, {}, kSettings).kept);
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
      update(reference, backend, grid, kUpdate);
      update(optimizer, backend, grid, kUpdate);
    }
    CHECK_FALSE(widened.values()[0] == wide.values().as<float>()[0]);  // something was rounded
  });
}

TEST_CASE("optimizer: a bad loss skips the update and is told from bad gradients") {
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    double loss;
    float gradient;
    bool skipped, bad_loss;
  };
  const Case each =
      GENERATE_COPY(Case{3, 0.5f, false, false}, Case{-1e-7, 0.5f, false, false}, Case{NAN, 0.5f, true, true},
                    Case{infinity, 0.5f, true, true}, Case{3, infinity, true, false}, Case{NAN, NAN, true, true});
  CAPTURE(each.loss, each.gradient);
  run_as_threads(2, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = 2});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    set_gradients(store, 1, 0.1);
    double loss = world.rank() == 1 ? each.loss : 3;  // one rank alone reads it wrong
    store.at(0).gradient.as<float>()[0] = each.gradient;
    const std::vector<float> before = copy_of(store.values());
    const ConstTensor losses = ConstTensor(&loss, {1}, DType::f64);
    const UpdateResult result = update(optimizer, backend, grid, kUpdate, losses);
    const bool kept = std::memcmp(copy_of(store.values()).data(), before.data(), before.size() * sizeof(float)) == 0;
    communicator_cases::expect(result.skipped == each.skipped && kept == each.skipped, "skipped: {}", result.skipped);
    communicator_cases::expect(result.bad_loss == each.bad_loss, "bad loss: {}", result.bad_loss);
    communicator_cases::expect(
        result.loss_sums[0] == 3 + each.loss || (std::isnan(result.loss_sums[0]) && std::isnan(each.loss)), "loss {}",
        result.loss_sums[0]);
    communicator_cases::expect(optimizer.updates() == (each.skipped ? 0 : 1), "updates {}", optimizer.updates());
  });
}

TEST_CASE("gradient norm: neighbouring parameters are one sum of squares") {
  struct CountedSums final : OpsDecorator {
    using OpsDecorator::OpsDecorator;
    void square_sum(const SquareSumArgs& args) override {
      elements.push_back(args.x.elements());
      OpsDecorator::square_sum(args);
    }
    void pass(const char*, const std::function<void()>& call) override { call(); }
    std::vector<std::int64_t> elements;
  };
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    CountedSums ops(std::move(backend.ops));
    set_gradients(store, 1, 0.3);
    Optimizer optimizer(store, kSettings, *backend.device, ops);
    const UpdateResult result = update(optimizer, *backend.device, ops, grid, kUpdate);
    CHECK(result.gradient_norm == Approx(norm_of(store)).epsilon(1e-6));
    // Up to the copy that another rank counts, after it, and the copy by itself: 48 + 48 + 10, 50 and 9 elements.
    CHECK(ops.elements == std::vector<std::int64_t>{106, 50, 9});
  });
}

TEST_CASE("optimizer: parameters of two rules train as with each alone") {
  const DType type = GENERATE(DType::f32, DType::bf16);
  const int ranks = GENERATE(1, 2);
  CAPTURE(name_of(type), ranks);
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = ranks});
    Backend backend = make_cpu_backend();
    OptimizerConfig config = kSettings;
    config.clip_grad_norm = 0;  // the norm is of all parameters
    OptimizerConfig sgd = config;
    sgd.name = "sgd";
    const std::vector<ParameterGroupConfig> groups = {
        {.roles = {"vector"}, .names = {}, .keys = {"name"}, .values = sgd}};
    struct Training {
      ParameterStore store;
      std::unique_ptr<ParameterAllGather> gathers;
      std::unique_ptr<Optimizer> optimizer;
    } mixed, with_adamw, with_sgd;
    for (Training* training : {&mixed, &with_adamw, &with_sgd}) {
      declare_all(training->store);
      training->store.allocate(*backend.device, type, {ranks}, 60);
      training->gathers = std::make_unique<ParameterAllGather>(grid, training->store);
      training->optimizer = std::make_unique<Optimizer>(
          training->store,
          ParameterGroups(training == &with_sgd ? sgd : config,
                          training == &mixed ? groups : std::vector<ParameterGroupConfig>{}),
          *backend.device, *backend.ops, training->gathers.get());
      training->optimizer->initialize(3);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        set_gradients(training->store, step, 0.3);
        update(*training->optimizer, backend, grid, kUpdate);
      }
      training->gathers->finish();
    }
    const auto numbers = [](const ParameterStore& store, int index) {
      const Parameter& parameter = store.at(index);
      const auto* bytes = static_cast<const std::byte*>(parameter.value.data());
      return std::vector<std::byte>(bytes, bytes + parameter.value.bytes());
    };
    std::int64_t states = 0, masters = 0;
    for (std::size_t k = 0; k < mixed.store.all().size(); ++k) {
      const Parameter& parameter = mixed.store.all()[k];
      const Training& alone = parameter.decays() ? with_adamw : with_sgd;
      const int index = static_cast<int>(k);
      communicator_cases::expect(numbers(mixed.store, index) == numbers(alone.store, index), "{}", parameter.name);
      for (const FlatRange& part : ParameterStore::parts_in(parameter, mixed.optimizer->owned())) {
        const Optimizer::State here = mixed.optimizer->state(part), there = alone.optimizer->state(part);
        communicator_cases::expect(here.states.size() == (parameter.decays() ? 2 : 1), "{}", parameter.name);
        communicator_cases::expect(copy_of(here.master) == copy_of(there.master), "{}", parameter.name);
        for (const auto& [name, tensor] : here.states) {
          communicator_cases::expect(copy_of(tensor) == copy_of(numbers_of(there.states, name)), "{} of {}", name,
                                     parameter.name);
        }
      }
    }
    for (const auto& [name, tensor] : mixed.optimizer->all_states()) states += tensor.elements();
    for (const FlatRange& range : mixed.optimizer->owned()) masters += type == DType::f32 ? 0 : range.count;
    const std::size_t bytes = mixed.optimizer->state_bytes();
    communicator_cases::expect(bytes == static_cast<std::size_t>(4 * (states + masters)), "{} bytes", bytes);
    const std::size_t most = with_adamw.optimizer->state_bytes(), least = with_sgd.optimizer->state_bytes();
    communicator_cases::expect(least <= bytes && bytes <= most, "{} bytes", bytes);
    // With shards a rank may have parameters of one rule alone.
    communicator_cases::expect(ranks > 1 || (least < bytes && bytes < most), "{} bytes", bytes);
    const Shard shard = mixed.gathers->shard();
    communicator_cases::expect(bytes == Optimizer::state_bytes(mixed.store, shard, {config, groups}).kept, "{} bytes",
                               bytes);
  });
}
