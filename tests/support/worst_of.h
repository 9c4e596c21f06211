// The largest of several errors, which NaN does not pass.
#pragma once

#include <algorithm>
#include <cmath>

namespace megatron::test {

/// The larger of both; infinity if `error` is NaN, which std::max would drop.
inline double worst_of(double worst, double error) {
  return std::isnan(error) ? HUGE_VAL : std::max(worst, error);
}

}  // namespace megatron::test
