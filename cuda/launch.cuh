// Launching kernels, and the memory that blocks share. The tests have a second file of this name, which runs the same
// kernels without a GPU; so kernels are launched by this function, and nothing else in cuda/ is said twice.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "cuda/cuda_check.h"

namespace megatron {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  ///< size of dynamic_shared()
};

/// Lets blocks of the kernel have so much dynamic shared memory on the current device. CUDA is told once.
void allow_shared_memory(const void* kernel, std::size_t bytes);

/// Starts kernel(arguments...) on the stream. Errors of the launch itself are thrown; those of the kernel show later.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  // Unless it is told, a block has 48 KiB, of which the kernel's static shared memory (5 KiB at most) is a part.
  if (shape.shared_bytes > (40u << 10)) {
    allow_shared_memory(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  }
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  CUDA_CHECK(cudaGetLastError());
}

/// The block's dynamic shared memory, aligned for 16-byte copies.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char megatron_dynamic_shared[];
  return reinterpret_cast<T*>(megatron_dynamic_shared);
}

}  // namespace megatron
