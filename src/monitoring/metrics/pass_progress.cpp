#include "monitoring/metrics/pass_progress.h"

#include <algorithm>
#include <cstring>

#include "base/core/timers.h"

namespace megatron {

void PassProgress::begin_step(std::int64_t micro_batches, std::int64_t chunks, bool halves) {
  work_of_backward_ = halves ? 1 : 2;
  done_.store(0, std::memory_order_relaxed);
  work_.store(3 * micro_batches * chunks, std::memory_order_relaxed);
  micro_batches_.store(micro_batches, std::memory_order_relaxed);
}

double PassProgress::fraction() const {
  const std::int64_t work = work_.load(std::memory_order_relaxed), done = done_.load(std::memory_order_relaxed);
  return work == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(work));
}

void PassProgress::begin(const char* name, std::int64_t number) {
  if (also_ != nullptr) also_->begin(name, number);
  const bool forward = std::strcmp(name, name_of(Section::forward)) == 0;
  const bool backward = std::strcmp(name, name_of(Section::backward)) == 0;
  enter(forward ? 1 : backward ? work_of_backward_ : 0);
}

void PassProgress::begin_transfer(const Transfer& transfer) {
  if (also_ != nullptr) also_->begin_transfer(transfer);
  enter(0);
}

void PassProgress::enter(int work) {
  if (depth_ < work_of_.size()) work_of_[depth_] = work;
  ++depth_;
}

void PassProgress::end() {
  if (also_ != nullptr) also_->end();
  --depth_;
  if (depth_ < work_of_.size()) {
    done_.store(done_.load(std::memory_order_relaxed) + work_of_[depth_], std::memory_order_relaxed);
  }
}

}  // namespace megatron
