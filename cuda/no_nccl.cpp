// Stands in for NCCL in a build of the CUDA backend without it.
#include "base/core/error.h"
#include "cuda/nccl_support.h"
#include "distributed/comm/communicator.h"

namespace megatron {

std::string nccl_version() {
  return {};
}

std::unique_ptr<Communicator> connect_nccl(Communicator& /*host*/, Device& /*device*/) {
  fail(ErrorKind::configuration,
       "run.communication = \"nccl\": this build has no NCCL; use run.communication = \"mpi\" or \"auto\"");
}

}  // namespace megatron
