// megatron_train --verify: does this layout train what one rank trains?
//
// Rank 0 plays the first steps of the run alone, as a whole model in fp32, one sample a micro-batch and without a
// lever. Then all ranks play them on their layout, in fp32, and once more in their own precision if that is another.
// Losses and gradient norms of every step and each gradient of the first are compared, by the promises that the tests
// hold the program to. Everything lives in memory: the run's directory is not looked at.
#pragma once

#include "base/log.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "train/run_start.h"

namespace megatron {

/// `config` as parsed. Prints the comparison and returns 0. Collective; throws on all ranks Error(numerics) that says
/// what differs, and, before anything is allocated, Error(configuration) if the reference or the layout needs more
/// memory than its node has.
int verify_layout(Config config, Communicator& world, const RunEnvironment& environment, Log& log);

}  // namespace megatron
