// Stands in for the CUDA backend in a build without one: asking for it is an error that says so.
#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "base/core/error.h"
#include "cuda/library.h"
#include "distributed/comm/communicator.h"

namespace megatron {

CudaBuild cuda_build() {
  return {};
}

bool cuda_device_is_likely() {
  return false;
}

const CudaSupport& cuda_support() {
  static const CudaSupport none = {.devices = 0, .description = "not in this build", .obstacle = {}};
  return none;
}

std::string cuda_library_file() {
  return {};
}

Backend make_cuda_backend(int /*device_index*/) {
  fail(ErrorKind::configuration,
       "run.device = \"cuda\": this build has no CUDA backend; use run.device = \"cpu\" or \"auto\"");
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& /*host*/, Device& /*device*/) {
  fail(ErrorKind::configuration,
       "run.communication = \"nccl\": this build has no NCCL; use run.communication = \"mpi\" or \"auto\"");
}

}  // namespace megatron
