// Stands in for the CUDA backend in a build without one: asking for it is an error that says so.
#include "base/error.h"
#include "comm/communicator.h"
#include "ops/counting_ops.h"
#include "ops/device.h"

namespace megatron {

CudaSupport cuda_support() {
  return {.built = false, .nccl = false, .devices = 0, .description = "not in this build"};
}

Backend make_cuda_backend(int /*device_index*/) {
  fail(ErrorKind::configuration,
       "run.device = \"cuda\": this build has no CUDA backend; use run.device = \"cpu\" or \"auto\"");
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& /*host*/, Device& /*device*/) {
  fail(ErrorKind::configuration,
       "run.communication = \"nccl\": this build has no NCCL; use run.communication = \"mpi\" or \"auto\"");
}

std::unique_ptr<CountingOps> make_cuda_counting_ops() {
  return std::make_unique<CountingOps>();
}

}  // namespace megatron
