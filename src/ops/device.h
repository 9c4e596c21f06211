// Device: where tensors live and how bytes get there. Nothing above ops/ asks which device it is.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tensor/memory.h"

namespace megatron {

class Ops;

class Device : public Allocator {
 public:
  virtual std::string description() const = 0;  ///< one line for the banner: model, cores or memory
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;  ///< waits for everything that was started
};

/// A device with its operations. The ops must not outlive the device.
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;

  Backend();
  Backend(std::unique_ptr<Device> device, std::unique_ptr<Ops> ops);
  Backend(Backend&&) noexcept;
  Backend& operator=(Backend&&) noexcept;
  ~Backend();
};

/// The CPU backend (src/cpu) with `threads` for its mathematics, the calling one included; to be used by the thread
/// that made it. Throws Error(configuration) if OpenMP's environment allows fewer.
Backend make_cpu_backend(int threads = 1);
/// The CUDA backend for one visible device; throws Error(configuration) where the build has none (cuda/).
Backend make_cuda_backend(int local_rank);

}  // namespace megatron
