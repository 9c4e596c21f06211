#include "data/shards/split.h"

#include <algorithm>
#include <cmath>

namespace megatron {

namespace {

/// Half to even, whatever the rounding mode: 0.5 -> 0, 1.5 -> 2.
double round_half_even(double value) {
  const double floor = std::floor(value), rest = value - floor;
  if (rest != 0.5) return rest < 0.5 ? floor : floor + 1;
  return std::fmod(floor, 2) == 0 ? floor : floor + 1;
}

}  // namespace

SplitBounds split_rounding_parts(std::uint64_t documents, const std::array<double, 3>& shares) {
  const double sum = shares[0] + shares[1] + shares[2];
  std::array<std::int64_t, 4> boundary{};
  for (std::size_t part = 0; part < 3; ++part) {
    const double share = round_half_even(shares[part] / sum * static_cast<double>(documents));
    boundary[part + 1] = boundary[part] + static_cast<std::int64_t>(share);
  }
  // The last boundary must be the number of documents: what rounding gave too much or too little is taken from all.
  const auto total = static_cast<std::int64_t>(documents);
  const std::int64_t surplus = boundary[3] - total;
  SplitBounds result{};
  for (std::size_t i = 1; i < 4; ++i) {
    result[i] = static_cast<std::uint64_t>(std::clamp<std::int64_t>(boundary[i] - surplus, 0, total));
  }
  return result;
}

SplitBounds split_rounding_boundaries(std::uint64_t count, const std::array<double, 3>& shares) {
  const double sum = shares[0] + shares[1] + shares[2];
  SplitBounds result{0, 0, 0, count};
  double cumulative = 0;
  for (std::size_t part = 0; part < 2; ++part) {
    cumulative += shares[part] / sum;
    const double boundary = round_half_even(cumulative * static_cast<double>(count));
    result[part + 1] = boundary < static_cast<double>(count) ? static_cast<std::uint64_t>(boundary) : count;
  }
  return result;
}

}  // namespace megatron
