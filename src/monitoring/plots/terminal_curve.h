// A curve drawn with characters: braille dots, or where the terminal has none, ASCII.
#pragma once

#include <string>
#include <vector>

#include "monitoring/plots/curve.h"

namespace megatron {

struct TerminalCanvas {
  int columns = 80, rows = 12;  ///< in all, with the labels of both axes
  bool braille = true;          ///< else plain ASCII
};

/// Lines of at most `columns` characters, `rows` of them: the curve's running mean, with values at the left and the
/// first and last step below. None where there are fewer than two points or no room (20 columns, 4 rows).
std::vector<std::string> terminal_curve(const std::vector<DecimatedCurve::Bucket>& points,
                                        const TerminalCanvas& canvas);

}  // namespace megatron
