// Charts of curves over steps: figures of an HTML page without scripts, or pictures in an SVG file. Series differ in
// dashes and marks as well as in colour, so that they do in black and white.
#pragma once

#include <string>
#include <vector>

#include "monitoring/plots/curve.h"

namespace megatron {

struct Series {
  std::string name = {};
  std::vector<DecimatedCurve::Bucket> points = {};
  bool smooth = false;  ///< its running mean, over the band from minimum to maximum
  bool marked = false;  ///< every point, as there are few
  bool joined = true;   ///< by lines
};

struct Chart {
  std::string title = {}, unit = {};     ///< plain text
  std::vector<Series> series = {};       ///< each has the next of eight looks; one without points is not shown
  bool from_zero = false;                ///< the axis begins at 0
  double first_step = 0, last_step = 0;  ///< shown at least; 0 and 0: what the series have
  double width = 440, height = 240;      ///< with the labels of its axes

  /// Adds a series with the curve's points.
  void add(Series one, const DecimatedCurve& curve);
};

/// A figure of a page with chart_style(); one without any points says that nothing was recorded.
std::string chart_figure(const Chart& chart);

/// The style sheet that figures need, for a page that defines none of these names: --text, --soft, --line, --back.
/// Colours follow the reader's light or dark theme.
std::string chart_style();

/// A whole SVG file: the charts one below the other, on white and with plain colours, as not all viewers of such files
/// know variables and themes. Texts are plain.
std::string chart_picture(const std::string& title, const std::string& subtitle, const std::vector<Chart>& charts);

}  // namespace megatron
