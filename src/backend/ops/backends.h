// The backends of this build: how they are made, and what is known of them before.
//
// Their code is in backend/cpu and cuda/, which layers do not include: they ask here.
#pragma once

#include <memory>
#include <string>

#include "backend/ops/device.h"
#include "base/core/native_16bit.h"

namespace megatron {

class Communicator;
class CountingOps;

/// The CPU backend (src/backend/cpu) with `threads` for its mathematics, the calling one included; to be used by the
/// thread that made it. Throws Error(configuration) if OpenMP's environment allows fewer, and if `native_16bit` is `on`
/// where the processor has no instructions that multiply bf16.
Backend make_cpu_backend(int threads = 1, Native16Bit native_16bit = Native16Bit::automatic);

// The CUDA backend (cuda/). It is a separate library, which loads CUDA's own libraries: 150 MiB and more of every
// process that loads them. So it is loaded when one of the functions that say so is called, and not before. In a build
// without it they stand for nothing (cuda/no_cuda.cpp).

/// Parts of CUDA in this build; the machine that it runs on may have less.
struct CudaBuild {
  bool cuda = false, nccl = false;
};
CudaBuild cuda_build();

/// Whether the machine seems to have a GPU that this process is let use: an NVIDIA driver's device file is there, and
/// CUDA_VISIBLE_DEVICES does not hide all. Loads nothing; false in a build without CUDA.
bool cuda_device_is_likely();

struct CudaSupport {
  int devices = 0;            ///< that this process sees and the kernels run on: compute capability 8.0 or later
  std::string description;    ///< one line: "CUDA 13.0, driver 580.95, NCCL 2.28.9; 8 devices"; "not in this build"
  std::string obstacle;       ///< why the library could not be loaded, and what to do; empty: it was, or is not built
  std::string unusable = {};  ///< GPUs or a driver that are there and of no use, and why; empty where there are none
};
/// CUDA on this machine; found out once. Loads the library. Never throws: a missing GPU, driver or library is no fault
/// yet.
const CudaSupport& cuda_support();
/// For the device with this number among CudaSupport::devices. Loads the library. Throws Error(configuration) where
/// there is none.
Backend make_cuda_backend(int device_index);
/// The ranks of `host` as a group that moves tensors of `device` (made by make_cuda_backend, each rank with one of its
/// own) with NCCL; control values go through `host` (Communicator::host). Collective over `host`, which must outlive
/// it, as must the device. Throws Error(configuration) where the build has no NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device);

/// Counting operations that know what the kernels of these backends work in. They need no device, and no library.
std::unique_ptr<CountingOps> make_cpu_counting_ops(int threads = 1);
std::unique_ptr<CountingOps> make_cuda_counting_ops();

}  // namespace megatron
