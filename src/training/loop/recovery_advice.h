// Where a run whose training has gone wrong can be continued from. Collective over `world`; the same on every rank.
#pragma once

#include <cstdint>
#include <string>

#include "distributed/comm/communicator.h"

namespace megatron {

/// Advice, in words, on what to do with the newest checkpoint of the run from before `step`; for the end of an error.
/// Where steps are skipped, `step` is the last one that was not: the step after a checkpoint from before it went well,
/// so that its parameters are good.
std::string recovery_advice(Communicator& world, const std::string& run_directory, std::int64_t step);

/// Throws Error(numerics) if a run that ends at `step` was skipping steps there: this number in a row, up to the last.
void require_learned(Communicator& world, const std::string& run_directory, std::int64_t step, std::int64_t skipped);

}  // namespace megatron
