// A small store of parameters with every property that the optimizer looks at, and what to fill it with.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/core/philox.h"
#include "support/tensors.h"
#include "training/optimizer/update_step.h"

namespace megatron::test {

inline const OptimizerConfig kSettings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip_grad_norm = 1};
inline constexpr UpdateSettings kUpdate{.learning_rate = 1e-2, .weight_decay = 0.1};

/// Rounded to 32 bits.
inline double as_float(double x) {
  return static_cast<double>(static_cast<float>(x));
}

inline Parameter parameter_of(const std::string& name, Shape shape, bool decay, bool owner = true) {
  Parameter parameter(decay ? Role::matrix : Role::vector);
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.box.extent = parameter.box.offset = shape;
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  parameter.owner = owner;
  return parameter;
}

// Ranges with and without decay, gaps inside and between them, and a copy that another rank counts.
inline void declare_all(ParameterStore& store) {
  store.declare(parameter_of("matrix", {5, 7}, true));
  store.declare(parameter_of("second matrix", {3, 11}, true));
  store.declare(parameter_of("bias", {7}, false));
  store.declare(parameter_of("second bias", {3}, false), /*adjacent=*/true);
  store.declare(parameter_of("copy", {9}, false, /*owner=*/false));
  store.declare(parameter_of("last matrix", {1, 50}, true));
}

inline void set_gradients(const ParameterStore& store, std::uint64_t seed, double width) {
  for (const Parameter& parameter : store.all()) {
    const Owned<float> gradient = random_tensor({parameter.elements()}, seed ^ hash_name(parameter.name), width);
    std::copy(gradient.values().begin(), gradient.values().end(), parameter.gradient.as<float>());
  }
}

inline void set_values(const ParameterStore& store) {
  for (const Parameter& parameter : store.all()) {
    const Owned<float> value = random_tensor({parameter.elements()}, hash_name(parameter.name) + 1);
    std::copy(value.values().begin(), value.values().end(), parameter.value.as<float>());
  }
}

/// The memory of one state.
inline Tensor state_of(const Optimizer& optimizer, std::string_view name) {
  return numbers_of(optimizer.all_states(), name);
}

/// All of it, in f32 and with those values.
inline void make_small(ParameterStore& store, const Backend& backend) {
  declare_all(store);
  store.allocate(*backend.device, DType::f32);
  store.initialize(*backend.ops, 1);
  set_values(store);
}

inline std::vector<float> copy_of(ConstTensor x) {
  return {x.as<float>(), x.as<float>() + x.elements()};
}

/// Norm of the gradients that this rank counts.
inline double norm_of(const ParameterStore& store) {
  double sum = 0;
  for (const Parameter& parameter : store.all()) {
    if (!parameter.owner) continue;
    for (const float g : copy_of(parameter.gradient)) sum += static_cast<double>(g) * static_cast<double>(g);
  }
  return std::sqrt(sum);
}

struct UpdateResult {
  double gradient_norm = 0;
  bool skipped = false, bad_loss = false;
  std::vector<double> loss_sums;
};

/// One update of all ranks. `losses`: f64 [terms] of this rank, or none.
inline UpdateResult update(Optimizer& optimizer, Device& device, Ops& ops, const ProcessGrid& grid,
                           const UpdateSettings& settings, ConstTensor losses = {}) {
  UpdateStep step(optimizer, grid, losses ? static_cast<std::size_t>(losses.elements()) : 0, device, ops);
  const StepVerdict verdict = step.run(settings, losses);
  return {
      verdict.gradient_norm, verdict.skipped, verdict.bad_loss, {verdict.loss_sums.begin(), verdict.loss_sums.end()}};
}

inline UpdateResult update(Optimizer& optimizer, const Backend& backend, const ProcessGrid& grid,
                           const UpdateSettings& settings, ConstTensor losses = {}) {
  return update(optimizer, *backend.device, *backend.ops, grid, settings, losses);
}

}  // namespace megatron::test
