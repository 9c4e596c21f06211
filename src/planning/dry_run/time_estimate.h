// How long a step will take on this machine's CPU, before there has been one: the operations that the plan counts, at
// rates measured on the spot. An estimate, for a machine that does nothing else: docs/training.md says how good it is.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "training/step/replica.h"

namespace megatron {

/// The speed of one rank with its threads.
struct MachineSpeed {
  double flops_per_second = 0;       ///< in a matrix product at the model's shapes, in fp32
  double bytes_per_second = 0;       ///< read and written, of memory that no cache holds
  double half_flops_per_second = 0;  ///< as flops_per_second in the 16 bits that the run computes in; 0: in none

  /// Rate of products of weights.
  double product_flops_per_second() const {
    return half_flops_per_second > 0 ? half_flops_per_second : flops_per_second;
  }
};

/// Takes about a tenth of a second, or one matrix product if that takes longer. `config` must be resolved.
MachineSpeed measure_speed(const Config& config);

/// One rank alone: a step of the stage that `plan` is of, at full length, without waiting for others.
double work_seconds(const Config& config, const MemoryPlan& plan, const MachineSpeed& speed);

/// A step (the largest, where the batch grows) of all ranks, `ranks_here` of which share `cores`. `stages`:
/// plan_stages().
double step_seconds(const Config& config, const std::vector<MemoryPlan>& stages, const MachineSpeed& speed,
                    int ranks_here, int cores);

}  // namespace megatron
