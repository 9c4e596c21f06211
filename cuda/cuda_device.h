// CudaDevice: one GPU as a Device. Its three queues are CUDA streams: operations, copies out, copies in.
//
// Makes its GPU the calling thread's current one; to be used by that thread only. Memory belongs to the Buffers that
// ask for it. Knows no operation.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "backend/ops/device.h"
#include "cuda/cuda_queue.h"

namespace megatron {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);  ///< among CudaSupport::devices
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  std::string description() const override { return description_; }  ///< "NVIDIA H200, 139.8 GiB"
  std::string identity() const override { return identity_; }
  std::optional<std::size_t> free_bytes() const override;
  bool is_host_memory() const override { return false; }
  Allocator& pinned() override { return pinned_; }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_within(void* to, const void* from, std::size_t bytes) override;

  Ticket mark() override { return {kOperations, operations_.mark()}; }
  Ticket start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) override;
  Ticket start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket after) override;
  void order_after(Ticket ticket) override { operations_.start_after(queue_of(ticket), ticket.number); }
  bool complete(Ticket ticket) override { return queue_of(ticket).complete(ticket.number); }
  void wait(Ticket ticket) override { queue_of(ticket).wait(ticket.number); }
  void synchronize() override;

  CudaQueue& operations() { return operations_; }
  /// As order_after(), for a queue of messages between ranks. They must not wait for a later point than the ticket's,
  /// which may come after a message that the other rank sends only when it has this one.
  void start_stream_after(CudaQueue& queue, Ticket ticket) {
    internal_check(queue_of(ticket).exact(ticket.number), "a message is posted too many operations late");
    queue.start_after(queue_of(ticket), ticket.number);
  }
  cudaStream_t compute_stream() const { return operations_.stream(); }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  std::size_t shared_bytes_per_block() const { return properties_.sharedMemPerBlockOptin; }  ///< for kernels that ask
  int capability() const { return 10 * properties_.major + properties_.minor; }  ///< 80 for compute capability 8.0

 private:
  struct Pinned final : Allocator {
    void* allocate(std::size_t bytes) override;
    void deallocate(void* memory, std::size_t bytes) noexcept override;
  };
  static constexpr std::uint32_t kOperations = 1, kCopiesOut = 2, kCopiesIn = 3;
  CudaQueue& queue_of(Ticket ticket);
  Ticket start_copy(std::uint32_t queue, void* to, const void* from, std::size_t bytes, Ticket after);

  cudaDeviceProp properties_;  // made current and looked at before the queues are made
  std::string description_, identity_;
  Pinned pinned_;
  CudaQueue operations_, copies_out_, copies_in_;
};

}  // namespace megatron
