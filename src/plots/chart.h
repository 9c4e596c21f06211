// Charts of curves over steps, as HTML figures with SVG inside and no script. Colours follow the reader's light or dark
// theme by chart_style(). Series differ in dashes and marks as well as in colour, so that they do in black and white.
#pragma once

#include <string>
#include <vector>

#include "plots/curve.h"

namespace megatron {

struct Series {
  std::string name = {};
  std::vector<DecimatedCurve::Bucket> points = {};
  bool smooth = false;  ///< its running mean, over the band from minimum to maximum
  bool marked = false;  ///< every point, as there are few
  bool joined = true;   ///< by lines
  int style = 0;        ///< one of the eight that chart_style() has
};

struct Chart {
  std::string title = {}, unit = {};  ///< plain text
  std::vector<Series> series = {};
  bool from_zero = false;                ///< the axis begins at 0
  double first_step = 0, last_step = 0;  ///< shown at least; 0 and 0: what the series have
};

/// A figure; one without any points says that nothing was recorded.
std::string chart_figure(const Chart& chart);

/// "12.5k", "3M": for axes with little room.
std::string short_label(double value);

/// The style sheet that figures need, for a page that defines none of these names: --text, --soft, --line, --back.
const char* chart_style();

}  // namespace megatron
