// A library that programs may take for the CUDA backend's: of their own build, of another (FAKE_BUILD), or of one from
// before builds had names.
#include "backend/ops/backends.h"
#include "cuda/build_name.h"
#include "cuda/library.h"

namespace {

megatron::CudaSupport support() {
  return {.devices = 3, .description = "three devices", .obstacle = {}};
}

}  // namespace

#ifdef FAKE_BUILD
const char* megatron_cuda_build() {
  return FAKE_BUILD;
}
#endif

const megatron::CudaLibrary* megatron_cuda_library() {
  static const megatron::CudaLibrary library = {.support = support, .open_backend = nullptr, .connect_nccl = nullptr};
  return &library;
}
