// Shared by the tests of operations on rows of experts: widths, whole vectors and not, and sums that begin at zero.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron::test {

inline constexpr std::int64_t kRowWidths[] = {1, 7, 33, 256, 1000, 2050};

inline std::vector<double> zeros(std::int64_t count) {
  return std::vector<double>(static_cast<std::size_t>(count));
}

}  // namespace megatron::test
