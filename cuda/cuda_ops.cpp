#include "cuda/cuda_ops.h"

#include "cuda/profiled_ops.h"

namespace megatron {

std::byte* CudaOps::scratch(std::size_t bytes) {
  if (bytes > scratch_.bytes()) reserve(bytes);
  return scratch_.data();
}

void CudaOps::reserve(std::size_t bytes) {
  if (bytes == scratch_.bytes()) return;
  device_.synchronize();  // kernels in flight may be using it
  scratch_ = Buffer();    // given back first: old and new need not fit side by side
  if (bytes > 0) scratch_ = Buffer(device_, bytes);
}

Backend open_cuda_backend(int device_index) {
  auto device = std::make_unique<CudaDevice>(device_index);
  std::unique_ptr<Ops> ops = with_ranges_if_wanted(std::make_unique<CudaOps>(*device));
  return {std::move(device), std::move(ops)};
}

}  // namespace megatron
