#include "training/loop/compare_steps.h"

#include <cmath>

#include "base/core/philox.h"
#include "training/loop/expert_report.h"

namespace megatron {

namespace {

// Parameters are in fp32, as their updates are: a few of the last bits of a tensor may fall otherwise.
constexpr double kParameterFloor = 1e-4;

const WholeTensors* at(const std::vector<WholeTensors>& tensors, std::int64_t step) {
  return tensors.empty() ? nullptr : &tensors[static_cast<std::size_t>(step)];
}

bool any_infinite(const std::vector<TensorDeviation>& differences) {
  for (const TensorDeviation& difference : differences) {
    if (!std::isfinite(difference.distance)) return true;
  }
  return false;
}

}  // namespace

ReferenceSteps run_reference(Trainer& trainer, Device& device, std::int64_t steps, Log& log) {
  ReferenceSteps reference;
  const Replica& replica = trainer.replica();
  reference.parameters = WholeTensors::of(replica.all_slices(false), device);
  for (std::int64_t step = 0; step < steps; ++step) {
    const double start = Timers::steady_seconds();
    const StepResult result = trainer.train_step([&](double loss_scale) {
      reference.gradients.push_back(
          WholeTensors::of_gradients(replica.summed_gradients(), replica.store().all(), 1 / loss_scale, device));
    });
    reference.losses.push_back(result.loss);
    reference.norms.push_back(result.gradient_norm);
    reference.gaps.push_back(result.experts.least_gap);
    log.info("reference step {} of {}: loss {:.6f}, {:.1f} s", step + 1, steps, result.loss,
             Timers::steady_seconds() - start);
  }
  reference.parameters.move_to(replica.all_slices(false), kParameterFloor, device);
  return reference;
}

ComparedSteps compare_steps(Trainer& trainer, const ProcessGrid& grid, Device& device, const ReferenceSteps& reference,
                            const ReferenceSteps& expected, std::int64_t steps, ReferenceSteps* own) {
  Communicator& world = grid.world();
  const bool root = world.rank() == 0;
  Replica& replica = trainer.replica();
  ComparedSteps run;
  if (own != nullptr) own->parameters = WholeTensors::of(replica.all_slices(false), device);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto index = static_cast<std::size_t>(step);
    StepComparison& compared = run.comparison.steps.emplace_back();
    const StepResult result = trainer.train_step([&](double loss_scale) {
      const std::vector<TensorSlice> held = replica.summed_gradients();
      if (own != nullptr)
        own->gradients.push_back(WholeTensors::of_gradients(held, replica.store().all(), 1 / loss_scale, device));
      const double unit = 1 / loss_scale;
      compared.gradients = compare_tensors(world, at(expected.gradients, step), held, unit, device);
      set_tensors(world, at(reference.gradients, step), held, loss_scale, device);
    });
    const double gap = with_agreed_gap(result.experts, grid).least_gap;
    if (own != nullptr) {
      own->losses.push_back(result.loss);
      own->gaps.push_back(gap);
    }
    compared.gap = {gap, expected.gaps[index]};
    compared.loss = {result.loss, expected.losses[index]};
    compared.norm = {result.gradient_norm, reference.norms[index]};
    // Each rank has read the loss by itself, and must not part from the others over it.
    const bool bad_gradient = any_infinite(compared.gradients), bad_loss = world.any_rank(!std::isfinite(result.loss));
    run.finite = run.finite && !bad_gradient && !bad_loss;
    run.overflow = bad_gradient && !bad_loss;
    if (run.overflow) return run;
  }
  replica.wait_for_values();
  if (steps == reference.steps()) {
    run.comparison.parameters =
        compare_tensors(world, root ? &expected.parameters : nullptr, replica.all_slices(false), 1, device);
  }
  if (own != nullptr) own->parameters.move_to(replica.all_slices(false), kParameterFloor, device);
  return run;
}

void perturb_weights(Trainer& trainer, Device& device, double share, std::uint64_t seed) {
  Replica& replica = trainer.replica();
  replica.wait_for_values();
  std::vector<float> values;
  for (const TensorSlice& slice : replica.all_slices(false)) {
    values.resize(static_cast<std::size_t>(slice.count));
    device.copy_to_host(values.data(), slice.value.data(), slice.value.bytes());
    const std::uint64_t key = random_key(seed, 0, hash_name(slice.name));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double uniform = static_cast<double>(mix64(key + i) >> 11) * 0x1p-52 - 1;  // from -1 to 1
      values[i] = static_cast<float>(values[i] * (1 + share * uniform));
    }
    device.copy_to_device(slice.value.data(), values.data(), slice.value.bytes());
  }
  replica.optimizer().set_values_from_master();
}

}  // namespace megatron
