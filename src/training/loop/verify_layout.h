// megatron_train --verify: does this layout train what one rank trains? Rank 0 trains the first steps of the run alone:
// the whole model in fp32, one sample per micro-batch. Then all ranks train them on their layout, in fp32 too, with the
// same gradients (compare_steps.h), and losses, gradients, norms and updates are compared. If the input file asks for
// another precision, one rank trains in that precision as well, and the layout is compared with it: this tells errors
// of the precision from errors of the layout. Everything lives in memory. A check of collectives is on meanwhile.
#pragma once

#include "base/system/log.h"
#include "config/schema/config.h"
#include "distributed/comm/communicator.h"
#include "training/loop/run_start.h"
#include "training/step/compute.h"

namespace megatron {

/// `given` as parsed. Prints the comparison and returns 0. Collective; throws on all ranks Error(numerics) that says
/// what differs, and, before anything is allocated, Error(configuration) if the reference or the layout needs more
/// memory than its node has. Without `check_collectives` runs are only compared, and no collective is looked at.
int verify_layout(const Config& given, Communicator& world, const RunEnvironment& environment, Log& log,
                  bool check_collectives = true);
/// The same with the resolved configuration, and with data and compute that the caller has opened.
int verify_layout_on(const Config& config, Communicator& world, Compute& compute, Datasets& datasets,
                     const RunEnvironment& environment, Log& log, bool check_collectives = true);

}  // namespace megatron
