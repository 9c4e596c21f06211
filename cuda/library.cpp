#include "cuda/library.h"

#include "backend/ops/backends.h"
#include "cuda/build_name.h"
#include "cuda/cuda_ops.h"
#include "cuda/cuda_support.h"
#include "cuda/nccl_support.h"

extern "C" const char* megatron_cuda_build() {
  return MEGATRON_BUILD_NAME;
}

extern "C" const megatron::CudaLibrary* megatron_cuda_library() {
  static constexpr megatron::CudaLibrary library = {.support = megatron::describe_cuda,
                                                    .open_backend = megatron::open_cuda_backend,
                                                    .connect_nccl = megatron::connect_nccl};
  return &library;
}
