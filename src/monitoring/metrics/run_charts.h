// Charts of a run, for loss.svg and report.html.
#pragma once

#include <vector>

#include "monitoring/metrics/plot_data.h"
#include "monitoring/plots/chart.h"

namespace megatron {

/// How well it learns: losses, accuracies if there are any, and the learning rate. Evaluations have a
/// separate chart where the run trains with another loss than they use.
std::vector<Chart> loss_charts(const PlotData& plot);

/// How it runs: terms of the loss, gradient norm, throughput, loss scale and skipped steps, where there are any.
std::vector<Chart> health_charts(const PlotData& plot);

}  // namespace megatron
