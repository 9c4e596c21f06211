// loss.svg: the run's losses and learning rate over steps as one self-contained picture, redrawn from metrics.jsonl.
//
// The picture's size and the memory needed are bounded however long the run is. A redraw replaces the file by rename,
// so that a viewer never sees half of one. Knows nothing of training: it reads what metrics.h wrote.
#pragma once

#include <string>

#include "monitor/plot_data.h"
#include "system/log.h"

namespace megatron {

/// The whole SVG file. `title` is plain text of any characters.
std::string draw_loss_plot(const PlotData& data, const std::string& title);

class LossPlot {
 public:
  /// Draws `folder`/metrics.jsonl into `folder`/loss.svg. `log` must outlive the plot.
  LossPlot(std::string folder, std::string title, Log& log);

  /// Never ends the run: what goes wrong is said once as a warning. Reads the whole metrics file (about 100 MB/s):
  /// for evaluations, checkpoints and the end, not for every step.
  void redraw();

 private:
  std::string folder_, title_;
  Log& log_;
  bool warned_ = false;
};

}  // namespace megatron
