#include "models/attention/alibi.h"

#include <bit>
#include <cmath>

#include "base/core/error.h"

namespace megatron {

std::vector<float> alibi_slopes(std::int64_t heads) {
  internal_check(heads > 0, "ALiBi slopes of no heads", heads);
  const auto slope = [](std::int64_t i, std::int64_t of) {
    return static_cast<float>(std::exp2(-8 * static_cast<double>(i + 1) / static_cast<double>(of)));
  };
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  for (std::int64_t i = 0; i < power; ++i) slopes.push_back(slope(i, power));
  for (std::int64_t i = 0; i < heads - power; ++i) slopes.push_back(slope(2 * i, 2 * power));
  return slopes;
}

}  // namespace megatron
