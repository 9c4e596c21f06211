// Runs that have nothing left to train, and --fresh, which trains such a run again in a new directory. Collective over
// `world`: rank 0 alone looks at the run directory.
#pragma once

#include <optional>
#include <string>

#include "base/system/log.h"
#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"

namespace megatron {

/// "already complete: ...", with the keys that differ from the finished run's and what to do; empty if there is
/// something left to train or to evaluate. `own`: the run's newest checkpoint. `config` must be resolved.
std::string already_complete(Communicator& world, const Config& config, const std::optional<CheckpointReader>& own);

/// The run directory for --fresh, made: `directory` if it has no run, else the first of NAME_2, NAME_3, ... that is
/// free.
std::string choose_fresh_directory(Communicator& world, const std::string& directory, Log& log);

}  // namespace megatron
