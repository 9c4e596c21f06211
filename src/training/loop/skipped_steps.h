// A run's reaction to a skipped step, as its SkippedStepPolicy decides: says why, or ends.
#pragma once

#include "base/system/log.h"
#include "config/schema/config.h"
#include "training/loop/skipped_step_policy.h"
#include "training/step/trainer.h"

namespace megatron {

/// After every step, skipped or not. `ends`: no other follows. Collective over the grid. Errors: numerics, the same on
/// every rank, if nothing is learned any more.
void observe_step(const Config& config, Communicator& world, Trainer& trainer, SkippedStepPolicy& policy,
                  const StepResult& result, bool ends, Log& log);

}  // namespace megatron
