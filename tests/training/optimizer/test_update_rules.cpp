// Update rules, each against an fp64 reference, on one rank.
#include <algorithm>
#include <cmath>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// AdamW in double, parameter by parameter.
struct AdamwReference {
  struct State {
    std::vector<double> value, m, v;
  };
  std::vector<State> states;
  int step = 0;

  explicit AdamwReference(const ParameterStore& store) {
    for (const Parameter& parameter : store.all()) {
      const std::vector<float> value = copy_of(parameter.value);
      const std::vector<double> zero(value.size());
      states.push_back({{value.begin(), value.end()}, zero, zero});
    }
  }

  void update(const ParameterStore& store, double gradient_norm) {
    ++step;
    const double factor = std::min(1.0, kSettings.clip_grad_norm / (gradient_norm + 1e-6));
    const double beta1 = as_float(kSettings.beta1), beta2 = as_float(kSettings.beta2);
    for (std::size_t k = 0; k < states.size(); ++k) {
      const Parameter& parameter = store.at(static_cast<int>(k));
      State& state = states[k];
      for (std::size_t i = 0; i < state.value.size(); ++i) {
        const double g = factor * static_cast<double>(parameter.gradient.as<float>()[i]);
        state.m[i] = beta1 * state.m[i] + (1 - beta1) * g;
        state.v[i] = beta2 * state.v[i] + (1 - beta2) * g * g;
        const double m_hat = state.m[i] / (1 - std::pow(beta1, step)), v_hat = state.v[i] / (1 - std::pow(beta2, step));
        const double decay = parameter.decays() ? kUpdate.weight_decay : 0;
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

TEST_CASE("AdamW: follows its fp64 reference and decays only where it belongs") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    AdamwReference reference(store);
    int clipped = 0;
    for (int step = 1; step <= 8; ++step) {
      CAPTURE(step);
      set_gradients(store, static_cast<std::uint64_t>(step), step % 2 == 0 ? 0.05 : 0.8);
      const double norm = norm_of(store);
      if (norm > kSettings.clip_grad_norm) ++clipped;
      reference.update(store, norm);
      const UpdateResult result = update(optimizer, backend, grid, kUpdate);
      CHECK(result.gradient_norm == Approx(norm).epsilon(1e-6));
      CHECK_FALSE(result.skipped);
      CHECK(optimizer.updates() == step);
      for (std::size_t k = 0; k < store.all().size(); ++k) {
        const Parameter& parameter = store.all()[k];
        INFO(parameter.name);
        CHECK(difference(parameter.value, reference.states[k].value, 2e-6) == "");
        CHECK(difference(state_of(optimizer, "m").slice(0, parameter.first, parameter.elements()),
                         reference.states[k].m, 2e-6) == "");
        CHECK(difference(state_of(optimizer, "v").slice(0, parameter.first, parameter.elements()),
                         reference.states[k].v, 2e-6) == "");
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
      CHECK(state_of(optimizer, "m").as<float>()[i] == 0);
    }
  });
}

TEST_CASE("SGD: momentum and L2 decay and clipping without unneeded memory") {
  for (const double momentum : {0.9, 0.0}) {
    CAPTURE(momentum);
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      ParameterStore store;
      make_small(store, backend);
      const OptimizerConfig settings{.name = "sgd", .momentum = momentum, .clip_grad_norm = 1};
      Optimizer optimizer(store, settings, *backend.device, *backend.ops);
      CHECK(state_of(optimizer, "m").empty() == (momentum == 0));
      CHECK(state_of(optimizer, "v").empty());
      const std::size_t one_moment = 4 * static_cast<std::size_t>(store.flat_elements());
      CHECK(optimizer.state_bytes() == (momentum == 0 ? 0 : one_moment));
      AdamwReference reference(store);
      for (std::uint64_t step = 1; step <= 4; ++step) {
        set_gradients(store, step, step % 2 == 0 ? 0.05 : 0.8);
        const double norm = norm_of(store), factor = std::min(1.0, 1 / (norm + 1e-6));
        for (std::size_t k = 0; k < store.all().size(); ++k) {
          const Parameter& parameter = store.all()[k];
          for (std::int64_t i = 0; i < parameter.elements(); ++i) {
            double& value = reference.states[k].value[static_cast<std::size_t>(i)];
            double& m = reference.states[k].m[static_cast<std::size_t>(i)];
            m = as_float(momentum) * m + factor * static_cast<double>(parameter.gradient.as<float>()[i]) +
                (parameter.decays() ? as_float(kUpdate.weight_decay) * value : 0);
            value -= as_float(kUpdate.learning_rate) * m;
          }
        }
        CHECK(update(optimizer, backend, grid, kUpdate).gradient_norm == Approx(norm).epsilon(1e-6));
        for (std::size_t k = 0; k < store.all().size(); ++k) {
          CHECK(difference(store.all()[k].value, reference.states[k].value, 2e-6) == "");
        }
      }
      const std::vector<float> before = copy_of(store.values());
      store.gradients().as<float>()[0] = NAN;
      CHECK(update(optimizer, backend, grid, kUpdate).skipped);
      CHECK(copy_of(store.values()) == before);
    });
  }
}

TEST_CASE("Lion: follows its fp64 reference with one state and skips") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    make_small(store, backend);
    OptimizerConfig settings = kSettings;
    settings.name = "lion";
    Optimizer optimizer(store, settings, *backend.device, *backend.ops);
    CHECK(state_of(optimizer, "v").empty());
    CHECK(optimizer.state_bytes() == 4 * static_cast<std::size_t>(store.flat_elements()));
    CHECK(optimizer.state_bytes() == Optimizer::state_bytes(store, {}, settings).kept);
    AdamwReference reference(store);
    const double beta1 = as_float(settings.beta1), beta2 = as_float(settings.beta2);
    const double rate = as_float(kUpdate.learning_rate);
    for (std::uint64_t step = 1; step <= 6; ++step) {
      CAPTURE(step);
      set_gradients(store, step, step % 2 == 0 ? 0.05 : 0.8);
      const double norm = norm_of(store), factor = std::min(1.0, settings.clip_grad_norm / (norm + 1e-6));
      CHECK(update(optimizer, backend, grid, kUpdate).gradient_norm == Approx(norm).epsilon(1e-6));
      for (std::size_t k = 0; k < store.all().size(); ++k) {
        const Parameter& parameter = store.all()[k];
        INFO(parameter.name);
        AdamwReference::State& state = reference.states[k];
        const double decay = parameter.decays() ? as_float(kUpdate.weight_decay) : 0;
        for (std::size_t i = 0; i < state.value.size(); ++i) {
          const double g = factor * static_cast<double>(parameter.gradient.as<float>()[i]);
          const double mean = beta1 * state.m[i] + (1 - beta1) * g;
          state.value[i] = state.value[i] * (1 - rate * decay) - rate * (mean > 0 ? 1 : -1);
          state.m[i] = beta2 * state.m[i] + (1 - beta2) * g;
        }
        CHECK(difference(parameter.value, state.value, 2e-6) == "");
        CHECK(difference(state_of(optimizer, "m").slice(0, parameter.first, parameter.elements()), state.m, 2e-6) ==
              "");
      }
    }
    // Gaps between the parameters have no gradient, hence no sign.
    const float* const values = store.values().as<float>();
    const auto zeros = std::count(values, values + store.flat_elements(), 0.0f);
    std::int64_t used = 0;
    for (const Parameter& parameter : store.all()) used += parameter.elements();
    CHECK(zeros == store.flat_elements() - used);
    const std::vector<float> before = copy_of(store.values()), m_before = copy_of(state_of(optimizer, "m"));
    store.gradients().as<float>()[0] = NAN;
    CHECK(update(optimizer, backend, grid, kUpdate).skipped);
    CHECK(copy_of(store.values()) == before);
    CHECK(copy_of(state_of(optimizer, "m")) == m_before);
  });
}
