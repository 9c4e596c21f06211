// MeteredDevice: a device that counts the memory that it hands out.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/ops/device.h"

namespace megatron::test {

/// A device that knows how much it has handed out.
class MeteredDevice final : public Device {
 public:
  explicit MeteredDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  std::size_t bytes() const { return bytes_; }
  int blocks() const { return blocks_; }

  void* allocate(std::size_t bytes) override {
    bytes_ += bytes;
    ++blocks_;
    return device_->allocate(bytes);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override { device_->deallocate(memory, bytes); }
  std::string description() const override { return device_->description(); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    device_->copy_to_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override { device_->copy_to_host(to, from, bytes); }
  void copy_within(void* to, const void* from, std::size_t bytes) override { device_->copy_within(to, from, bytes); }
  std::optional<std::size_t> free_bytes() const override { return device_->free_bytes(); }
  bool is_host_memory() const override { return device_->is_host_memory(); }
  Allocator& pinned() override { return device_->pinned(); }
  Ticket mark() override { return device_->mark(); }
  Ticket start_copy_to_host(void* to, const void* from, std::size_t bytes, Ticket after) override {
    return device_->start_copy_to_host(to, from, bytes, after);
  }
  Ticket start_copy_to_device(void* to, const void* from, std::size_t bytes, Ticket after) override {
    return device_->start_copy_to_device(to, from, bytes, after);
  }
  void order_after(Ticket ticket) override { device_->order_after(ticket); }
  bool complete(Ticket ticket) override { return device_->complete(ticket); }
  void wait(Ticket ticket) override { device_->wait(ticket); }
  void synchronize() override { device_->synchronize(); }

 private:
  std::unique_ptr<Device> device_;
  std::size_t bytes_ = 0;
  int blocks_ = 0;
};

}  // namespace megatron::test
