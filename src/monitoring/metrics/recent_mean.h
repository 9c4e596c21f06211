// RecentMean: the mean of the last values, for estimates of the time to go. Old values fade: a new one counts a tenth.
// A program's first step takes longer than others, as it touches memory for the first time: the first value counts
// until there is another one. (After a resume the first step of the next program counts like any other value.)
#pragma once

#include <algorithm>
#include <cstdint>

namespace megatron {

class RecentMean {
 public:
  void add(double value) {
    mean_ += (value - mean_) / static_cast<double>(std::clamp<std::int64_t>(values_, 1, kMost));
    ++values_;
  }
  double value() const { return mean_; }  ///< 0: there was none

 private:
  static constexpr std::int64_t kMost = 10;
  std::int64_t values_ = 0;
  double mean_ = 0;
};

}  // namespace megatron
