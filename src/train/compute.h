// What a job computes on and how its tensors travel: run.device and run.communication made into a backend and, where
// the host cannot touch the device's memory, a communicator of its own. The only place that knows there are several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "ops/counting_ops.h"
#include "ops/device.h"

namespace megatron {

/// Decides what run.device = "auto" is: "cuda" where this build has it and every rank has a device that it can use,
/// else "cpu", with a warning on rank 0 if some rank's machine seems to have one. Collective; throws the same
/// Error(configuration) on all ranks if what the input file asks for is not there.
void choose_device(RunConfig& run, Communicator& world, std::vector<std::string>& warnings);
/// The same for a plan, without ranks and without asking for anything to be there.
void choose_planned_device(RunConfig& run);

struct Compute {
  Backend backend;
  std::unique_ptr<Communicator> transport;  ///< of the device's tensors; absent: the world moves them
  std::string description;                  ///< of the way they travel, one line, if it is not the world's
};

/// After choose_device(): the backend of this rank, the `local_rank`-th on its host, and its transport. Decides what
/// run.communication = "auto" is: NCCL where the build has it and no two ranks share a device, else "mpi". Collective;
/// errors as above. The transport refers to the world and the backend's device.
Compute start_compute(RunConfig& run, Communicator& world, const std::string& host, int local_rank);

/// For other groups than the world, those of one rank among them: moves the device's tensors through `group`, which
/// must outlive it; nothing where the host's communicators can.
std::unique_ptr<Communicator> staged_transport(Communicator& group, Device& device);

/// Counting operations that know what the chosen device's kernels work in.
std::unique_ptr<CountingOps> make_counting_ops(const RunConfig& run);
/// Whether the chosen device computes in the host's memory.
bool on_host_memory(const RunConfig& run);
/// Whether tensors are staged through host memory (parallel/staged_communicator.h); both keys must be chosen.
bool stages_tensors(const RunConfig& run);

}  // namespace megatron
