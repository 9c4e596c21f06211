#include "planning/layout_search/measured_rates.h"

namespace megatron {

double SecondsByBytes::at(double bytes) const {
  if (points_.empty()) return 0;
  const auto above = points_.lower_bound(bytes);
  if (above == points_.begin()) return above->second;
  const auto& [lower, seconds] = *std::prev(above);
  if (above == points_.end()) return seconds * bytes / lower;
  const double share = std::log(bytes / lower) / std::log(above->first / lower);
  return std::exp((1 - share) * std::log(seconds) + share * std::log(above->second));
}

double SecondsByBytes::in_proportion(double bytes) const {
  if (points_.empty()) return 0;
  const double fewest = points_.begin()->first;
  return bytes < fewest ? at(fewest) * bytes / fewest : at(bytes);
}

}  // namespace megatron
