// Ranges: whoever is told what a rank is in the middle of, by name: a profiler. They are nested, and of one thread.
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

/// Begins a range, and ends it when destroyed; does nothing where nobody wants to know (null).
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
