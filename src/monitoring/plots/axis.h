// Axes of pictures: from data to places, with ticks at round numbers.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace megatron {

/// A linear map from data to the picture; places far outside of it are brought nearer.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const {
    return std::clamp(from + (value - low) / (high - low) * (to - from), -1e5, 1e5);
  }
};

/// A single value gets a range around it. No axis goes beyond 1e300: its length must stay finite.
Axis axis_for(double low, double high, double from, double to);

/// Ticks at 1, 2 or 5 times a power of ten inside [low, high]: at most about `count`; none if high ≤ low.
std::vector<double> nice_ticks(double low, double high, int count);

/// 12000 as "12,000", small numbers in their shortest form.
std::string tick_label(double value);

/// "12.5k", "3M": for axes with little room.
std::string short_label(double value);

}  // namespace megatron
