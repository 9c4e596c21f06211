// Facts of the optimizer that a run's checkpoints carry, and whether a run can continue with its state.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "distributed/comm/communicator.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// Keys of what a checkpoint's `extra` holds of the optimizer, in addition to its states: its name, its groups (as an
/// input file has them; only if there are some), the updates it has made, and the state of a dynamic loss scale.
inline constexpr const char *kOptimizerKey = "optimizer", *kGroupsKey = "optimizer_groups", *kUpdatesKey = "updates",
                            *kLossScalerKey = "loss_scaler";

/// The name and the groups.
nlohmann::json optimizer_facts(const Config& config);

/// Throws Error(checkpoint), the same on all ranks, unless each parameter of the rank's store was trained by the rule
/// that it has in this run, with the states that this run keeps of it. Collective.
void require_same_optimizer(const CheckpointReader& checkpoint, const Config& config, const ParameterStore& store,
                            Communicator& world);

}  // namespace megatron
