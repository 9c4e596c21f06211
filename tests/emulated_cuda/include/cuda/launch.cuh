// Stands in for cuda/launch.cuh: launches run at once, on fibers.
#pragma once

#include <cuda_runtime.h>

#include "cuda/cuda_check.h"

namespace megatron {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
};

void allow_shared_memory(const void* kernel, std::size_t bytes);

template <class... Parameters, class... Arguments>
void launch(cudaStream_t, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  allow_shared_memory(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  emulated_cuda::run(shape.grid, shape.block, shape.shared_bytes,
                     [&] { kernel(static_cast<Parameters>(arguments)...); });
  CUDA_CHECK(cudaGetLastError());  // also what an earlier call has left behind
}

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated_cuda::dynamic_shared_memory());
}

}  // namespace megatron
