// HangWatchPause: while it lives, what this rank waits for is not taken for a hang, however long it takes: other ranks
// are known to be at work meanwhile.
#pragma once

#include <string_view>

#include "distributed/comm/communicator.h"

namespace megatron {

class HangWatchPause {
 public:
  /// `phase`: what the rank is said to be doing.
  HangWatchPause(Communicator& world, std::string_view phase) : activity_(world.activity()) {
    if (activity_ == nullptr) return;
    activity_->set_phase(phase);
    activity_->set_patient(true);
  }
  ~HangWatchPause() {
    if (activity_ != nullptr) activity_->set_patient(false);
  }
  HangWatchPause(const HangWatchPause&) = delete;
  HangWatchPause& operator=(const HangWatchPause&) = delete;

 private:
  Activity* activity_;
};

}  // namespace megatron
