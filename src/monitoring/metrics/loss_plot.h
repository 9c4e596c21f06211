// loss.svg: loss_charts() of a run as one self-contained picture.
//
// The picture's size and the time of a redraw are bounded however long the run is: it draws curves that its owner keeps
// in memory, and reads no file. A redraw replaces the file by rename, so that a viewer never sees half of one.
#pragma once

#include <string>

#include "base/system/log.h"
#include "monitoring/metrics/plot_data.h"

namespace megatron {

/// The whole SVG file. `title` is plain text of any characters.
std::string draw_loss_plot(const PlotData& data, const std::string& title);

class LossPlot {
 public:
  /// Draws `data` into `folder`/loss.svg. `data` and `log` must outlive the plot.
  LossPlot(std::string folder, std::string title, const PlotData& data, Log& log);

  /// Never ends the run: what goes wrong is said once as a warning.
  void redraw();

 private:
  std::string path_, title_;
  const PlotData& data_;
  Log& log_;
  bool warned_ = false;
};

}  // namespace megatron
