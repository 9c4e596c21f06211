#include "cuda/cuda_queue.h"

#include <algorithm>

#include "cuda/cuda_check.h"

namespace megatron {

CudaQueue::CudaQueue(bool urgent) {
  int least = 0, greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least));
  for (cudaEvent_t& event : events_) CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

CudaQueue::~CudaQueue() {
  (void)cudaStreamSynchronize(stream_);
  for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  (void)cudaStreamDestroy(stream_);
}

std::uint64_t CudaQueue::mark() {
  CUDA_CHECK(cudaEventRecord(events_[++marked_ % kEvents], stream_));
  return marked_;
}

cudaEvent_t CudaQueue::event_of(std::uint64_t number) const {
  const std::uint64_t oldest = marked_ < kEvents ? 1 : marked_ - kEvents + 1;
  return events_[std::max(number, oldest) % kEvents];
}

bool CudaQueue::complete(std::uint64_t number) {
  if (number <= complete_) return true;
  const cudaError_t state = cudaEventQuery(event_of(number));
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // or the next launch takes it for its own
    return false;
  }
  CUDA_CHECK(state);
  complete_ = number;
  return true;
}

void CudaQueue::wait(std::uint64_t number) {
  if (number <= complete_) return;
  CUDA_CHECK(cudaEventSynchronize(event_of(number)));
  complete_ = number;
}

void CudaQueue::start_after(CudaQueue& other, std::uint64_t number) {
  if (this == &other || number <= other.complete_) return;
  CUDA_CHECK(cudaStreamWaitEvent(stream_, other.event_of(number)));
}

}  // namespace megatron
