#include "monitoring/plots/terminal_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "monitoring/plots/axis.h"

namespace megatron {

namespace {

constexpr int kFewestColumns = 20, kFewestRows = 4, kLabel = 8;  // characters of a value at the left

/// Dots of a grid, of which a cell has some in each direction.
class Dots {
 public:
  Dots(int columns, int rows, bool braille)
      : wide_(braille ? 2 : 1),
        high_(braille ? 4 : 1),
        columns_(columns),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows), 0) {}

  int width() const { return columns_ * wide_; }
  int height() const { return static_cast<int>(cells_.size()) / columns_ * high_; }

  void set(int x, int y) {
    // The order of braille's dots: three rows of each column, then the fourth row.
    constexpr std::array<std::array<int, 2>, 4> kBits = {{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    x = std::clamp(x, 0, width() - 1);
    y = std::clamp(y, 0, height() - 1);
    cells_[static_cast<std::size_t>(y / high_ * columns_ + x / wide_)] |=
        kBits[static_cast<std::size_t>(y % high_)][static_cast<std::size_t>(x % wide_)];
  }

  std::string row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const int cell = cells_[static_cast<std::size_t>(row * columns_ + column)];
      if (cell == 0) {
        text += ' ';
      } else if (high_ == 1) {
        text += '*';
      } else {  // U+2800 and its dots, in UTF-8
        text += '\xe2';
        text += static_cast<char>(0xa0 + (cell >> 6));
        text += static_cast<char>(0x80 + (cell & 0x3f));
      }
    }
    return text;
  }

 private:
  int wide_, high_, columns_;
  std::vector<int> cells_;
};

/// The dot of a value; values that are not on the axis have its ends.
int dot_on(const Axis& axis, double value, int dots) {
  const double at = axis(value);
  return at > 0 ? static_cast<int>(std::lround(std::min(at, dots - 1.0))) : 0;  // also of NaN
}

}  // namespace

std::vector<std::string> terminal_curve(const std::vector<DecimatedCurve::Bucket>& points,
                                        const TerminalCanvas& canvas) {
  if (points.size() < 2 || canvas.columns < kFewestColumns || canvas.rows < kFewestRows) return {};
  const std::vector<double> values = smoothed(points);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const int rows = canvas.rows - 1, columns = canvas.columns - kLabel - 2;
  Dots dots(columns, rows, canvas.braille);
  const Axis x = axis_for(points.front().x, points.back().x, 0, dots.width() - 1);
  const Axis y = axis_for(*low, *high, dots.height() - 1, 0);
  // Every column of dots between two points has one, and those that lie above each other are joined.
  int from_x = 0, from_y = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int to_x = dot_on(x, points[i].x, dots.width()), to_y = dot_on(y, values[i], dots.height());
    if (i == 0) {
      from_x = to_x;
      from_y = to_y;
    }
    const int count = std::max({std::abs(to_x - from_x), std::abs(to_y - from_y), 1});
    for (int k = 0; k <= count; ++k) {
      const double share = static_cast<double>(k) / count;
      dots.set(static_cast<int>(std::lround(from_x + share * (to_x - from_x))),
               static_cast<int>(std::lround(from_y + share * (to_y - from_y))));
    }
    from_x = to_x;
    from_y = to_y;
  }
  const char* const wall = canvas.braille ? "\xe2\x94\x82" : "|";  // U+2502
  std::vector<std::string> lines;
  for (int row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1 || (rows >= 7 && row == rows / 2);
    const double value = y.low + (y.high - y.low) * (rows - 1 - row) / (rows - 1);
    lines.push_back(
        fmt::format("{:>{}} {}{}", labelled ? fmt::format("{:.4g}", value) : "", kLabel, wall, dots.row(row)));
  }
  const std::string last = short_label(std::round(points.back().x)), first = short_label(std::round(points.front().x));
  lines.push_back(fmt::format("{:>{}}  {:<{}}{}", "step", kLabel, first,
                              std::max(1, columns - static_cast<int>(last.size())), last));
  return lines;
}

}  // namespace megatron
