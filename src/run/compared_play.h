// The run's first steps, played to be compared: by one rank, whose numbers are kept, and then by others to compare. All
// plays follow one path: after each backward a play's own gradients are compared and then replaced by those of the
// first play, the guide, before they update anything. So every step starts from the same parameters and moments but for
// rounding: Adam, which makes a full step of a gradient that is only rounding, cannot drive two right plays apart, and
// errors of a step show in that step. Parameters are compared after the last update. Everything else is as in training:
// schedules, sums, sharded updates and gathers under the next forward.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnostics/parity_report.h"
#include "system/log.h"
#include "train/trainer.h"

namespace megatron {

/// A play's numbers on all ranks; its tensors on rank 0 alone, in host memory.
struct PlayedSteps {
  std::vector<double> losses, norms;    ///< by step
  std::vector<double> gaps;             ///< by step, of the router (train/expert_use.h)
  std::vector<WholeTensors> gradients;  ///< by step
  WholeTensors parameters;              ///< after the last step

  std::int64_t steps() const { return static_cast<std::int64_t>(losses.size()); }
};

/// Plays the guide: a separate run on a grid of one rank.
PlayedSteps play_guide(Trainer& trainer, Device& device, std::int64_t steps, Log& log);

struct ComparedPlay {
  PlayComparison comparison;
  bool finite = true;     ///< all of its losses and gradients were
  bool overflow = false;  ///< a gradient was not finite in a step whose loss was: a smaller loss scale may be all it
                          ///< takes. The play ended there
};

/// Plays `steps` along the guide's path and compares each with `expected`: the guide itself, or another play along its
/// path. `own`, if given (on a grid of one rank), gets this play's losses, gradients and parameters. Collective over
/// the grid; all ranks get the same differences. Parameters are compared with those of `expected`: from the same
/// gradients all are updated alike, but a router's choice bias follows the choices, and they depend on the precision.
ComparedPlay play_along(Trainer& trainer, const ProcessGrid& grid, Device& device, const PlayedSteps& guide,
                        const PlayedSteps& expected, std::int64_t steps, PlayedSteps* own = nullptr);

/// Changes each weight of a grid of one rank by up to `share` of itself, differently for each `seed`: as good as other
/// rounding errors in everything that is computed with it.
void perturb_weights(Trainer& trainer, Device& device, double share, std::uint64_t seed);

}  // namespace megatron
