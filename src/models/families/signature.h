// Facts that a checkpoint holds about its model, in shape and meaning, so that no other model loads it: those of one
// family (models/families/family.h has the table), and which of them a run that loads the checkpoint must share.
#pragma once

#include <nlohmann/json.hpp>

#include "config/schema/config.h"

namespace megatron {

/// Keys of [model] and their values. A key that was added later is absent where the model is without it, so that older
/// checkpoints stay equal. `config` must be resolved.
nlohmann::json decoder_signature(const Config& config);
/// The facts of a checkpoint or run that must be equal for the one to resume from the other: all but the size of a
/// table that the model does not have.
nlohmann::json decoder_resume_signature(nlohmann::json facts);
/// The facts that must be equal for a new run to start with the weights; a task's head may be new. Weights serve
/// shorter sequences and learn longer ones, to which rotations are stretched by another base (Xiong et al. 2023) or
/// scaling; which channels turn, and the rows of a learned table, belong to the weights.
nlohmann::json decoder_weights_signature(nlohmann::json facts);

}  // namespace megatron
