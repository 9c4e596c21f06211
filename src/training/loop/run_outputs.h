// RunOutputs: the files that a run writes next to its checkpoints, and its lines on the screen. Rank 0's are written.
//
// Every line of the metrics is also kept as curves in memory, of bounded size, from which the plot and the report are
// drawn: nothing is read again while the run is under way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/system/log.h"
#include "config/schema/config.h"
#include "monitoring/metrics/loss_plot.h"
#include "monitoring/metrics/metrics.h"
#include "monitoring/metrics/progress.h"
#include "monitoring/metrics/tensorboard.h"
#include "monitoring/reports/run_record.h"

namespace megatron {

struct RunOutputs {
  /// `output` must outlive it.
  RunOutputs(const Config& config, Log& output);

  /// For a run that continues after `step`, with these evaluations to do: cuts the metrics back, and takes the lines
  /// that stay. Says what could not be read. Errors: filesystem.
  void continue_after(std::int64_t step, const std::vector<std::string>& evaluations_due);

  const std::string metrics_path;
  Log& log;
  RunCurves curves;
  TensorBoardEvents events;  // begun only where run.tensorboard asks for them
  MetricsWriter metrics;
  Progress progress;
  LossPlot plot;
};

}  // namespace megatron
