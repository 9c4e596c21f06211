#include "cuda/cuda_support.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <fstream>

#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "cuda/nccl_support.h"

namespace megatron {

namespace {

constexpr int kLeastMajor = 8;  // Ampere: mma.sync of bf16, asynchronous copies

/// "13.0" of CUDA's 13000.
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

/// The newest CUDA that the driver knows; 0: there is none.
int newest_cuda() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

std::string driver_version() {
  if (newest_cuda() == 0) return "no driver";
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  if (version.empty()) return fmt::format("driver for CUDA {}", cuda_version(newest_cuda()));
  return fmt::format("driver {} (for CUDA {})", version, cuda_version(newest_cuda()));
}

}  // namespace

VisibleGpus visible_gpus() {
  // CUDA reads both when the process first uses a GPU; the user's own setting wins. Streams that share a connection
  // wait for each other, and loading a kernel at its first launch may wait for every stream of the GPU: fatal where one
  // of them waits for another rank.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  VisibleGpus gpus;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    if (newest_cuda() != 0 && error != cudaErrorNoDevice) gpus.unusable = cudaGetErrorString(error);
    return gpus;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      gpus.unusable += fmt::format("{}GPU {} gives no answer", gpus.unusable.empty() ? "" : "; ", i);
      (void)cudaGetLastError();
    } else if (properties.major < kLeastMajor) {
      gpus.unusable += fmt::format("{}GPU {} ({}) has compute capability {}.{}, {}.0 or later is needed",
                                   gpus.unusable.empty() ? "" : "; ", i, properties.name, properties.major,
                                   properties.minor, kLeastMajor);
    } else {
      gpus.usable.push_back(i);
    }
  }
  return gpus;
}

CudaSupport describe_cuda() {
  const VisibleGpus gpus = visible_gpus();
  const std::size_t devices = gpus.usable.size();
  const std::string nccl = nccl_version();
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  return {.devices = static_cast<int>(devices),
          .description = fmt::format("CUDA {}, {}, {}; {} device{}{}{}", cuda_version(runtime), driver_version(),
                                     nccl.empty() ? "no NCCL" : "NCCL " + nccl, devices, devices == 1 ? "" : "s",
                                     gpus.unusable.empty() ? "" : "; ", gpus.unusable),
          .obstacle = {},
          .unusable = gpus.unusable};
}

}  // namespace megatron
