// PollBackoff: what a rank does while nothing moves. With more ranks than cores the one that is waited for may need
// this core; and who has waited for a second is not waiting for a message on its way, but for a rank that computes or
// reads for long.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace megatron {

class PollBackoff {
 public:
  void moved() { still_ = false; }
  void rest() {
    if (++rounds_ <= 100) return;
    const auto now = std::chrono::steady_clock::now();
    if (!still_) since_ = now;
    still_ = true;
    if (now - since_ < std::chrono::seconds(1)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  int rounds_ = 0;
  bool still_ = false;
  std::chrono::steady_clock::time_point since_;  // while nothing has moved
};

}  // namespace megatron
