#include "backend/ops/counting_device.h"

#include <cstring>

namespace megatron {

void* CountingDevice::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  void* const address = reinterpret_cast<void*>(next_);
  next_ += (bytes / kAlignment + 1) * kAlignment;  // two allocations never have the same address
  held_ += bytes;
  return address;
}

void CountingDevice::copy_to_host(void* host, const void*, std::size_t bytes) {
  std::memset(host, 0, bytes);
}

Ticket CountingDevice::start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket) {
  copy_to_host(host, device, bytes);
  return {};
}

}  // namespace megatron
