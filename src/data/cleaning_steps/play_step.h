// A step on a corpus: reads the inputs, plays the step on all ranks, and publishes the result folder.
//
// Ranks take the blocks of the input in turn, one each a round, and rank 0 writes what they keep in the order of the
// input: the result is the same bytes for any number of ranks and any size of blocks. An error on any rank ends the
// step, and it is the first one in the order of the input.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "data/cleaning_steps/step_job.h"
#include "distributed/comm/communicator.h"

namespace megatron {

struct StepResult {
  nlohmann::ordered_json provenance;  ///< on every rank
  bool was_finished = false;          ///< it was there already, made from the same
};

/// Called on every rank now and then, with the bytes of input done and of all.
using StepProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Collective. `job` is the same on all ranks. Errors: configuration for values that cannot be and for another result
/// in the folder; data for documents and inputs, with file and line; filesystem.
StepResult play_step(Communicator& world, const StepJob& job, const StepProgress& progress = {});

}  // namespace megatron
