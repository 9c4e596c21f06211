#include "monitoring/metrics/loss_plot.h"

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "monitoring/metrics/run_charts.h"
#include "monitoring/plots/axis.h"

namespace megatron {

std::string draw_loss_plot(const PlotData& data, const std::string& title) {
  std::vector<Chart> panels = loss_charts(data);
  for (Chart& panel : panels) {
    panel.width = 912;
    panel.height = &panel == panels.data() ? 360 : 150;
  }
  return chart_picture(title, data.train_lines > 0 ? "step " + tick_label(data.last_step) : "", panels);
}

LossPlot::LossPlot(std::string folder, std::string title, const PlotData& data, Log& log)
    : path_(std::move(folder) + "/loss.svg"), title_(std::move(title)), data_(data), log_(log) {}

void LossPlot::redraw() {
  try {
    replace_file(path_, draw_loss_plot(data_, title_));
  } catch (const Error& error) {
    if (!warned_) log_.warning("the loss plot was not redrawn: {}", error.what());
    warned_ = true;
  }
}

}  // namespace megatron
