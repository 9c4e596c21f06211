#include "monitoring/plots/axis.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace megatron {

Axis axis_for(double low, double high, double from, double to) {
  low = std::clamp(low, -1e300, 1e300);
  high = std::clamp(high, -1e300, 1e300);
  if (!(high > low)) {  // a single value: something around it
    const double tenth = std::abs(low) * 0.1, room = tenth > 0 ? tenth : 1;
    low -= room;
    high += room;
  }
  return {low, high, from, to};
}

std::vector<double> nice_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || count < 1) return ticks;
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  if (!(step > 0)) return ticks;  // the range is below what numbers can be
  // Counting in whole numbers keeps 0 exactly 0; the tolerance keeps ends that rounding would lose.
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last && ticks.size() < 100; ++i)
    ticks.push_back(i * step + 0.0);  // + 0.0: no negative zero
  return ticks;
}

std::string tick_label(double value) {
  if (std::abs(value) < 1000 || std::abs(value) >= 1e12) return fmt::format("{:.6g}", value);
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, ",");
  return (value < 0 ? "-" : "") + digits;
}

std::string short_label(double value) {
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e4) return tick_label(value);
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits) {
    if (size >= unit) return fmt::format("{:.4g}{}", value / unit, letter);
  }
  return tick_label(value);
}

}  // namespace megatron
