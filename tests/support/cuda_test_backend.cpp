// The CUDA backend under test, a real one or the emulated: managed memory, and a wait after every verb.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "cuda/cuda_device.h"
#include "support/test_backend.h"

namespace megatron::test {

namespace {

class WaitingOps final : public OpsDecorator {
 public:
  WaitingOps(std::unique_ptr<Ops> ops, Device& device) : OpsDecorator(std::move(ops)), device_(device) {}

 private:
  void pass(const char*, const std::function<void()>& call) override {
    call();
    device_.synchronize();
  }
  Device& device_;
};

}  // namespace

Backend make_test_backend() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU is visible");
    std::exit(77);
  }
  Backend backend = make_cuda_backend(0);
  backend.ops = std::make_unique<WaitingOps>(std::move(backend.ops), *backend.device);
  return backend;
}

void* allocate_for_test(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, bytes == 0 ? 1 : bytes) != cudaSuccess) throw std::bad_alloc();
  return memory;
}

void free_for_test(void* memory) noexcept {
  (void)cudaFree(memory);
}

}  // namespace megatron::test
