// Stands in for the CUDA backend in a build without one: asking for it is an error that says so.
#include "base/error.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace megatron {

Backend make_cuda_backend(int /*local_rank*/) {
  fail(ErrorKind::configuration,
       "run.device = \"cuda\": this build has no CUDA backend; use run.device = \"cpu\" or \"auto\"");
}

}  // namespace megatron
