// Ranges: the interface of a profiler, which receives the names of what a rank is doing. Nested; for one thread.
// Names are string literals: a profiler may keep the pointers.
#pragma once

#include <cstdint>

#include "base/core/activity.h"

namespace megatron {

/// A communication on its way: while it is being started, and while the rank waits for its end.
struct Transfer {
  Waiting what;                ///< a peer is a rank of the group
  const char* group = "";      ///< its name, which lives as long as the group
  std::int32_t channel = -1;   ///< messages have one
  std::int64_t operation = 0;  ///< numbers the operations of this rank: start and wait have the same
  bool starts = false;
};

class Ranges {
 public:
  virtual ~Ranges() = default;
  /// From here on, within the ranges that have begun before; `number` where there are several of that name, -1: none.
  virtual void begin(const char* name, std::int64_t number = -1) = 0;
  /// The same for a communication, where there is more to say than its name.
  virtual void begin_transfer(const Transfer& transfer) { begin(name_of(transfer.what.verb)); }
  virtual void end() = 0;
};

/// Begins a range, and ends it when destroyed; does nothing without a profiler (null).
class [[nodiscard]] Range {
 public:
  explicit Range(Ranges* ranges, const char* name, std::int64_t number = -1) : ranges_(ranges) {
    if (ranges_ != nullptr) ranges_->begin(name, number);
  }
  explicit Range(Ranges* ranges, const Transfer& transfer) : ranges_(ranges) {
    if (ranges_ != nullptr) ranges_->begin_transfer(transfer);
  }
  ~Range() {
    if (ranges_ != nullptr) ranges_->end();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  Ranges* ranges_;
};

}  // namespace megatron
