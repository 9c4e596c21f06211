#include "cuda/cuda_check.h"

namespace megatron {

void check_cuda(cudaError_t code, const char* expression, SourcePlace where) {
  if (code == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();  // or the next launch tells it once more
  verify(code != cudaErrorMemoryAllocation, ErrorKind::configuration,
         "out of device memory in {} ({}:{}): use a smaller train.micro_batch_size, recompute.mode = \"full\", or more "
         "tensor or pipeline ranks (--dry-run predicts the memory)",
         expression, where.file, where.line);
  fail(ErrorKind::internal,
       "{} failed: {} ({}, {}:{}). An error of a kernel shows at a later call: CUDA_LAUNCH_BLOCKING=1 in the "
       "environment makes it show where it happens; see also the driver's own log (dmesg, nvidia-smi -q)",
       expression, cudaGetErrorString(code), cudaGetErrorName(code), where.file, where.line);
}

}  // namespace megatron
