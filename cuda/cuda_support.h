// CUDA on this machine: its GPUs, and which of them the kernels run on.
#pragma once

#include <string>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"

namespace megatron {

struct VisibleGpus {
  std::vector<int> usable;  ///< CUDA's numbers of the GPUs with compute capability 8.0 or later
  std::string unusable;     ///< faults of other GPUs, or of the driver that is there; empty: none
};
/// The GPUs that this process sees. Comes before every other use of CUDA: it sets environment variables that CUDA
/// reads. Never throws.
VisibleGpus visible_gpus();

CudaSupport describe_cuda();

}  // namespace megatron
