// CudaLibrary: functions of libmegatron_cuda.so for the programs, which look up one function to get them.
//
// The library consists of cuda/ alone. It is loaded where the backend is asked for (backend/ops/device.h says when),
// never unloaded, and never linked with: a program that computes on the CPU has nothing of CUDA in memory.
#pragma once

#include <memory>
#include <string>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"

namespace megatron {

/// The library uses the program's base, tensor, ops and comm: the program has those layers whole and shows their names
/// to the library (CMakeLists.txt). So there is one Error to throw and catch, one table of everything, and no function
/// twice. For the same reason nothing in the library may have the name of something in a program: make_cuda_backend()
/// of the programs has the counterpart open_cuda_backend() here.
///
/// Library and program must have the same interface, whose classes they share: each is told which one when it is
/// compiled (cuda/build_name.cmake), and a program calls nothing of a library with another. Whatever the interface
/// hides may differ: kernels, or the working memory that plans count for them (cuda/working_memory.cpp); then a step
/// may allocate. A name that one of them lacks is an error when the library is loaded.
struct CudaLibrary {
  CudaSupport (*support)();
  Backend (*open_backend)(int device_index);
  std::unique_ptr<Communicator> (*connect_nccl)(Communicator& host, Device& device);
};

/// The file of the library: next to the program, in ../lib/megatron_train from there (make install), in ../lib, or up
/// to two folders above (tests in a build folder); empty where there is none.
std::string cuda_library_file();

}  // namespace megatron

// Exported by the library under these names. What they return lives as long as the process.
extern "C" {
/// Name of the interface that the library has: unless it is the same text as the program's, nothing else of the library
/// may be called.
const char* megatron_cuda_build();
const megatron::CudaLibrary* megatron_cuda_library();
}
