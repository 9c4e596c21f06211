// Axes of pictures: from data to places, with ticks at round numbers.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// A linear map from data to the picture.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

/// If there is but a single value: something around it.
Axis axis_for(double low, double high, double from, double to);

/// Ticks at 1, 2 or 5 times a power of ten inside [low, high]: at most about `count`; none if high ≤ low.
std::vector<double> nice_ticks(double low, double high, int count);

/// 12000 as "12,000", small numbers in their shortest form.
std::string tick_label(double value);

}  // namespace megatron
