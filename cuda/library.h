// CudaLibrary: what libmegatron_cuda.so gives the programs, by the one function that they look up in it.
//
// The library is loaded where the backend is asked for (ops/device.h says when), never given back, and never linked
// with: who computes on the CPU has nothing of CUDA in memory. It consists of cuda/ alone. What it needs of base,
// tensor, ops and comm is the program's, which has those layers whole and shows their names to it (CMakeLists.txt): so
// there is one Error to throw and catch, one table of everything, and no function twice. Hence also the other way
// round: nothing in the library has the name of something in a program, e.g. make_cuda_backend(), whose counterpart
// is open_cuda_backend(). Library and program are of one interface, whose classes they share: each has been told which
// when it was compiled (cuda/build_name.cmake), and a program calls nothing of a library of another. What the
// interface hides, kernels or what plans say that they work in (cuda/working_memory.cpp), may differ: then a step may
// allocate. A name that one lacks is an error when it is loaded.
#pragma once

#include <memory>
#include <string>

#include "ops/device.h"

namespace megatron {

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
/// Which interface it is of: the same text as the program's, or nothing else of it may be called.
const char* megatron_cuda_build();
const megatron::CudaLibrary* megatron_cuda_library();
}
