// CudaQueue: a CUDA stream whose points have numbers, for tickets: an event is recorded at each, and events are used
// again, so that any number may be asked for. One whose event has been recorded anew stands for the oldest point that
// still has an event, which is later: waiting for it is waiting long enough, between ranks perhaps too long; see
// exact().
//
// Owns its stream and events. Used by one thread, whose current device is the stream's.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

namespace megatron {

class CudaQueue {
 public:
  static constexpr std::uint64_t kEvents = 256;

  /// Urgent: its kernels' blocks are started before those of queues that are not.
  explicit CudaQueue(bool urgent = false);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  cudaStream_t stream() const { return stream_; }
  /// The number of the point after all work so far; from 1 on.
  std::uint64_t mark();
  /// Whether waiting for the number is waiting for its own point: it is one of the last kEvents, or complete.
  bool exact(std::uint64_t number) { return marked_ - number < kEvents || complete(number); }
  bool complete(std::uint64_t number);
  void wait(std::uint64_t number);  ///< the host waits
  /// Work that is put on this queue from now on starts when the other queue has come to this point.
  void start_after(CudaQueue& other, std::uint64_t number);

 private:
  cudaEvent_t event_of(std::uint64_t number) const;

  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  std::uint64_t marked_ = 0, complete_ = 0;
};

}  // namespace megatron
