#include "cuda/cublas_check.h"

namespace megatron {

const char* cublas_advice(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "cuBLASLt could not start: the device's memory is full, or its driver is older than this CUDA "
             "(megatron_train --version names both)";
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "this cuBLASLt has no algorithm for the product on this device: try a newer CUDA, or sizes that are "
             "multiples of 8";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "an error of a kernel before may show here: CUDA_LAUNCH_BLOCKING=1 in the environment makes it show where "
             "it happens; see also nvidia-smi -q and dmesg";
    default: return "CUBLASLT_LOG_LEVEL=5 in the environment makes cuBLASLt say more";
  }
}

void check_cublas(cublasStatus_t status, const char* expression, SourcePlace where) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorKind::internal, "{} failed: {} ({}, {}:{}). {}", expression, cublasLtGetStatusString(status),
       cublasLtGetStatusName(status), where.file, where.line, cublas_advice(status));
}

cublasStatus_t status_of_search(cublasStatus_t status, int found, cublasStatus_t state) {
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : state;
}

}  // namespace megatron
