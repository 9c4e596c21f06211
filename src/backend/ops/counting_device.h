// CountingDevice: a device that nothing is on. Allocations are sizes and addresses that must not be followed, copies to
// the host are zeros, all others move nothing, and every ticket is complete. With counting operations and communicators
// the real objects are constructed on it and played, to learn what they need. Pinned memory is the host's own.
#pragma once

#include "backend/ops/device.h"

namespace megatron {

class CountingDevice final : public Device {
 public:
  /// host_memory: stands for a device whose memory is the host's.
  explicit CountingDevice(bool host_memory) : host_memory_(host_memory) {}

  void* allocate(std::size_t bytes) override;
  void deallocate(void*, std::size_t bytes) noexcept override { held_ -= bytes; }
  std::size_t held() const { return held_; }  ///< bytes allocated and not given back

  std::string description() const override { return "counting"; }
  std::optional<std::size_t> free_bytes() const override { return std::nullopt; }
  bool is_host_memory() const override { return host_memory_; }
  Allocator& pinned() override { return host_memory(); }
  void copy_to_device(void*, const void*, std::size_t) override {}
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_within(void*, const void*, std::size_t) override {}
  Ticket mark() override { return {}; }
  Ticket start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) override;
  Ticket start_copy_to_device(void*, const void*, std::size_t, Ticket) override { return {}; }
  void order_after(Ticket) override {}
  bool complete(Ticket) override { return true; }
  void wait(Ticket) override {}
  void synchronize() override {}

 private:
  bool host_memory_;
  std::size_t held_ = 0;
  std::uint64_t next_ = std::uint64_t{0xC0} << 56;  // no processor maps these addresses
};

}  // namespace megatron
