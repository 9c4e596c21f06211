// The emulated backend in the place of the library that programs load: linked.
#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "cuda/library.h"
#include "distributed/comm/communicator.h"

namespace megatron {

CudaBuild cuda_build() {
  return {.cuda = true, .nccl = false};
}
bool cuda_device_is_likely() {
  return true;
}
const CudaSupport& cuda_support() {
  static const CudaSupport once = megatron_cuda_library()->support();
  return once;
}
std::string cuda_library_file() {
  return {};
}
Backend make_cuda_backend(int device_index) {
  return megatron_cuda_library()->open_backend(device_index);
}
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device) {
  return megatron_cuda_library()->connect_nccl(host, device);
}

}  // namespace megatron
