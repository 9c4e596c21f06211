// What this machine has of CUDA: its GPUs, and which of them the kernels run on.
#pragma once

#include <string>
#include <vector>

#include "ops/device.h"

namespace megatron {

struct VisibleGpus {
  std::vector<int> usable;  ///< CUDA's numbers of those with compute capability 8.0 or later
  std::string unusable;     ///< what is wrong with others, or with the driver that is there; empty: nothing
};
/// Of those that this process sees. Comes before every other use of CUDA: it settles what CUDA reads of the
/// environment. Never throws.
VisibleGpus visible_gpus();

CudaSupport describe_cuda();

}  // namespace megatron
