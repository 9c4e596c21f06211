// Messages of the checks of CUDA's libraries when a call is refused: the expression, the library's own words, the
// place, and what to do. The libraries refuse these calls with a GPU and without.
#include "cuda/cublas_check.h"
#include "cuda/cuda_check.h"
#include "support/require_error.h"
#ifdef MEGATRON_TEST_NCCL
#include "cuda/nccl_lane.h"
#include "support/catch.h"
#endif

using namespace megatron;
using namespace megatron::test;

TEST_CASE("CUDA_CHECK names the call, CUDA's error, the place and what to do") {
  require_error(ErrorKind::internal,
                {"cudaSetDevice(-1) failed: ", "(cudaError", "test_checks.cpp:", "CUDA_LAUNCH_BLOCKING=1"},
                [] { CUDA_CHECK(cudaSetDevice(-1)); });
  (void)cudaGetLastError();
  require_error(ErrorKind::configuration, {"out of device memory in somewhere", "train.micro_batch_size"},
                [] { check_cuda(cudaErrorMemoryAllocation, "somewhere"); });
  CHECK_NOTHROW(CUDA_CHECK(cudaSuccess));
}

TEST_CASE("CUBLAS_CHECK: names the call and status and place and what to do") {
  cublasLtMatmulDescOpaque_t product;
  CHECK_NOTHROW(CUBLAS_CHECK(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
  const int value = 0;
  require_error(
      ErrorKind::internal,
      {"cublasLtMatmulDescSetAttribute(", "failed: ", "(CUBLAS_STATUS_INVALID_VALUE, ",
       "test_checks.cpp:", "CUBLASLT_LOG_LEVEL=5"},
      [&] { CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA, &value, 1)); });
  // Each with its own advice.
  require_error(ErrorKind::internal, {"failed: ", "(CUBLAS_STATUS_NOT_SUPPORTED, ", "multiples of 8"},
                [] { CUBLAS_CHECK(CUBLAS_STATUS_NOT_SUPPORTED); });
  require_error(ErrorKind::internal, {"failed: ", "(CUBLAS_STATUS_NOT_INITIALIZED, ", "--version"},
                [] { CUBLAS_CHECK(CUBLAS_STATUS_NOT_INITIALIZED); });
  require_error(ErrorKind::internal, {"failed: ", "(CUBLAS_STATUS_EXECUTION_FAILED, ", "CUDA_LAUNCH_BLOCKING=1"},
                [] { CUBLAS_CHECK(CUBLAS_STATUS_EXECUTION_FAILED); });
}

TEST_CASE("search for an algorithm: found or unusable or none or an error") {
  constexpr cublasStatus_t success = CUBLAS_STATUS_SUCCESS, none = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(status_of_search(success, 0, success) == none);
  CHECK(status_of_search(none, 0, success) == none);
  CHECK(status_of_search(success, 1, success) == success);
  CHECK(status_of_search(success, 1, none) == none);
  for (const cublasStatus_t wrong :
       {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,
        CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_ARCH_MISMATCH}) {
    CAPTURE(cublasLtGetStatusName(wrong));
    CHECK(status_of_search(wrong, 0, success) == wrong);
    CHECK(status_of_search(success, 1, wrong) == wrong);
  }
}

#ifdef MEGATRON_TEST_NCCL
TEST_CASE("check_nccl names what was done, NCCL's error and what to do") {
  int ranks = 0;
  const ncclResult_t result = ncclCommCount(nullptr, &ranks);
  require_error(ErrorKind::communication, {"NCCL, counting: invalid argument", "one GPU per rank"},
                [&] { check_nccl(result, nullptr, "counting"); });
  require_error(ErrorKind::communication, {"NCCL, group 'data'", "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME"},
                [] { check_nccl(ncclRemoteError, nullptr, "group 'data'"); });
  CHECK_NOTHROW(check_nccl(ncclInProgress, nullptr, ""));
}
#endif
