// What this build and this machine have of CUDA. Never throws: a machine without GPU or driver is none's fault.
#include <cuda_runtime.h>

#include <cstdlib>
#include <fstream>

#include "cuda/nccl_support.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace megatron {

namespace {

/// "13.0" of CUDA's 13000.
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string driver_version() {
  int newest_cuda = 0;
  if (cudaDriverGetVersion(&newest_cuda) != cudaSuccess || newest_cuda == 0) return "no driver";
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  if (version.empty()) return fmt::format("driver for CUDA {}", cuda_version(newest_cuda));
  return fmt::format("driver {} (for CUDA {})", version, cuda_version(newest_cuda));
}

}  // namespace

CudaSupport cuda_support() {
  // Streams of more connections than the driver makes by itself wait for each other: fatal for those that wait for
  // another rank. Read when the process first uses a GPU, which is here.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  CudaSupport support{.built = true, .nccl = !nccl_version().empty(), .devices = 0, .description = {}};
  if (cudaGetDeviceCount(&support.devices) != cudaSuccess) {
    support.devices = 0;
    (void)cudaGetLastError();
  }
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  support.description = fmt::format("CUDA {}, {}, {}; {} device{}", cuda_version(runtime), driver_version(),
                                    support.nccl ? "NCCL " + nccl_version() : "no NCCL", support.devices,
                                    support.devices == 1 ? "" : "s");
  return support;
}

}  // namespace megatron
