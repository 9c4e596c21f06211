// PassProgress: how far a rank has come with the forward and backward passes of a step, as its timers tell it; read by
// another thread. On devices that compute in the background it is how much has been given to them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/core/ranges.h"

namespace megatron {

class PassProgress final : public Ranges {
 public:
  /// `also` (or null) hears everything too.
  void pass_on_to(Ranges* also) { also_ = also; }
  /// Before a step of `micro_batches` through `chunks` chunks of this rank; `halves`: backwards come in two passes.
  void begin_step(std::int64_t micro_batches, std::int64_t chunks, bool halves);

  /// The share of the step's work that is done: 0 to 1, a backward counting as two forwards.
  double fraction() const;
  std::int64_t micro_batches() const { return micro_batches_.load(std::memory_order_relaxed); }

  void begin(const char* name, std::int64_t number) override;
  void begin_transfer(const Transfer& transfer) override;
  void end() override;

 private:
  void enter(int work);

  Ranges* also_ = nullptr;
  std::array<int, 32> work_of_{};  // one for each range that has begun and not ended, for the thread that computes
  std::size_t depth_ = 0;
  int work_of_backward_ = 2;
  std::atomic<std::int64_t> done_{0}, work_{0}, micro_batches_{0};
};

}  // namespace megatron
