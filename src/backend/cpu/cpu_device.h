// CpuDevice: host memory as a Device. Blocks are 64-byte aligned; big ones lie on huge pages where the kernel offers
// them, because page faults and TLB misses of fresh 4 KiB pages cost a training step more than a tenth of its time.
//
// Owns nothing but its description; memory belongs to the Buffers that ask for it. Knows no operation.
#pragma once

#include <string>

#include "backend/ops/device.h"

namespace megatron {

class CpuDevice final : public Device {
 public:
  CpuDevice();

  /// At least `bytes` bytes (one block also for 0), contents undefined. Throws Error(configuration) with the size if
  /// the machine does not have them.
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;

  std::string description() const override { return description_; }  ///< "AMD EPYC, 2 cores"
  std::optional<std::size_t> free_bytes() const override;
  bool is_host_memory() const override { return true; }
  Allocator& pinned() override { return *this; }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_within(void* to, const void* from, std::size_t bytes) override;

  // Everything is done when its call returns.
  Ticket mark() override { return {}; }
  Ticket start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket) override {
    copy_to_host(host, device, bytes);
    return {};
  }
  Ticket start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket) override {
    copy_to_device(device, host, bytes);
    return {};
  }
  void order_after(Ticket) override {}
  bool complete(Ticket) override { return true; }
  void wait(Ticket) override {}
  void synchronize() override {}

 private:
  std::string description_;
};

}  // namespace megatron
