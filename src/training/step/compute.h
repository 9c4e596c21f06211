// Device and transport of a job: run.device and run.communication made into a backend and, where the host cannot touch
// the device's memory, a communicator for its tensors. The only place that knows there are several. A configuration is
// read here, never written: what was chosen is in the values that are returned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/ops/counting_ops.h"
#include "backend/ops/device.h"
#include "config/schema/config.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// `run` with a device instead of "auto": "cuda" where this build has it and every rank has a device that it can use,
/// else "cpu", with a warning on rank 0 if some rank's machine seems to have one; "cpu" communicates by "mpi".
/// Collective; throws the same Error(configuration) on all ranks if what the input file asks for is not there.
RunConfig choose_device(RunConfig run, Communicator& world, std::vector<std::string>& warnings);
/// The same for a plan, without ranks and without asking for anything to be there.
RunConfig choose_planned_device(RunConfig run);

/// How tensors travel between ranks.
enum class TransportKind {
  host,    ///< they are in host memory: by the communicators of the world
  staged,  ///< a device's, through pinned host memory (distributed/parallel/staged_communicator.h)
  nccl,    ///< a device's, by NCCL
};

struct Compute {
  Backend backend;
  TransportKind transport_kind = TransportKind::host;
  std::unique_ptr<Communicator> transport;  ///< for the device's tensors; absent: the world moves them
  std::string description;                  ///< one line about the way they travel, if it is not the world's
  std::string half_products = {};           ///< how a CPU multiplies bf16 (training/step/code_path.h)
};

/// After choose_device(): the backend of this rank, the `local_rank`-th on its host, and its transport. Decides what
/// run.communication = "auto" is: NCCL where the build has it and no two ranks share a device, else "mpi"; and what
/// run.native_16bit = "auto" is. `type`: that the job computes in; in bf16, processors that multiply it in different
/// ways are refused. Collective; errors as above. The transport refers to the world and the backend's device.
Compute start_compute(const RunConfig& run, DType type, Communicator& world, const std::string& host, int local_rank);

/// For other groups than the world, those of one rank among them: moves the device's tensors through `group`, which
/// must outlive it; nothing where the host's communicators can.
std::unique_ptr<Communicator> staged_transport(Communicator& group, Device& device);

/// Counting operations that know what the chosen device's kernels work in.
std::unique_ptr<CountingOps> make_counting_ops(const RunConfig& run);
/// Whether the chosen device computes in the host's memory.
bool on_host_memory(const RunConfig& run);
/// How tensors will travel, for a plan; the device must be chosen.
TransportKind planned_transport(const RunConfig& run);
/// How the tensors of such a device travel in such a group.
TransportKind transport_of(const Device& device, const Communicator& group);

}  // namespace megatron
