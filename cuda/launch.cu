#include <map>
#include <utility>

#include "cuda/launch.cuh"

namespace megatron {

void allow_shared_memory(const void* kernel, std::size_t bytes) {
  thread_local std::map<std::pair<int, const void*>, std::size_t> allowed;
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  std::size_t& most = allowed[{device, kernel}];
  if (bytes <= most) return;
  const cudaError_t told =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (told == cudaErrorInvalidValue) (void)cudaGetLastError();  // or the next launch takes it for its own
  verify(told != cudaErrorInvalidValue, ErrorKind::configuration,
         "a kernel works in {} KiB of shared memory, more than a block has on this GPU; use smaller heads",
         bytes >> 10);
  CUDA_CHECK(told);
  most = bytes;
}

}  // namespace megatron
