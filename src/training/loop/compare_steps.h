// The first steps of a run, compared with those of a reference run on one rank, whose numbers are kept. After each
// backward the run's own gradients are compared and then replaced by the reference's before they update anything. So
// every step starts from the same parameters and moments but for rounding: Adam, which makes a full step of a gradient
// that is only rounding, cannot drive two right runs apart, and errors of a step show in that step. Parameters are
// compared after the last update. Everything else is as in training: schedules, sums, sharded updates and gathers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/system/log.h"
#include "training/diagnostics/parity_report.h"
#include "training/step/trainer.h"

namespace megatron {

/// A run's numbers on all ranks; its tensors on rank 0 alone, in host memory.
struct ReferenceSteps {
  std::vector<double> losses, norms;    ///< by step
  std::vector<double> gaps;             ///< by step, of the router (training/step/expert_use.h)
  std::vector<WholeTensors> gradients;  ///< by step
  WholeTensors parameters;              ///< after the last step

  std::int64_t steps() const { return static_cast<std::int64_t>(losses.size()); }
};

/// The reference run's first `steps`, on a grid of one rank.
ReferenceSteps run_reference(Trainer& trainer, Device& device, std::int64_t steps, Log& log);

struct ComparedSteps {
  RunComparison comparison;
  bool finite = true;     ///< all of its losses and gradients were
  bool overflow = false;  ///< a gradient was not finite in a step whose loss was: a smaller loss scale may be all it
                          ///< takes. The run ended there
};

/// Trains `steps` with the reference's gradients and compares each with `expected`: the reference itself, or another
/// run with its gradients. `own`, if given (on a grid of one rank), gets this run's losses, gradients and parameters.
/// Collective over the grid; all ranks get the same differences. Parameters are compared with those of `expected`: from
/// the same gradients all are updated alike, but a router's choice bias follows the choices, and they depend on the
/// precision.
ComparedSteps compare_steps(Trainer& trainer, const ProcessGrid& grid, Device& device, const ReferenceSteps& reference,
                            const ReferenceSteps& expected, std::int64_t steps, ReferenceSteps* own = nullptr);

/// Changes each weight of a grid of one rank by up to `share` of itself, differently for each `seed`: as good as other
/// rounding errors in everything that is computed with it.
void perturb_weights(Trainer& trainer, Device& device, double share, std::uint64_t seed);

}  // namespace megatron
