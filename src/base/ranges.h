// Ranges: the interface of a profiler, which receives the names of what a rank is doing. Nested; for one thread.
#pragma once

#include <cstdint>

namespace megatron {

class Ranges {
 public:
  virtual ~Ranges() = default;
  /// From here on, within the ranges that have begun before; `number` where there are several of that name, -1: none.
  virtual void begin(const char* name, std::int64_t number = -1) = 0;
  virtual void end() = 0;
};

/// Begins a range, and ends it when destroyed; does nothing without a profiler (null).
class [[nodiscard]] Range {
 public:
  explicit Range(Ranges* ranges, const char* name, std::int64_t number = -1) : ranges_(ranges) {
    if (ranges_ != nullptr) ranges_->begin(name, number);
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
