// The progress lines that people watch: one line per logged step, in fixed columns under a repeated header.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/system/log.h"
#include "monitoring/metrics/recent_mean.h"

namespace megatron {

struct ProgressLine {
  std::int64_t step = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> losses = {};  ///< by name, the terms; shown where there are several
  double grad_norm = 0, learning_rate = 0;
  double step_seconds = 0;       ///< for one step
  double tokens_per_second = 0;  ///< the whole job's
  double remaining_tokens = 0;   ///< to the end of the run
  double remaining_seconds = 0;  ///< not finite: unknown
  double loss_scale = 1;         ///< shown where it is not 1
  bool skipped = false;          ///< the update was skipped for a non-finite loss or gradient
};

/// "  NAME VALUE" of each where there are several, else nothing: the end of a line.
std::string losses_by_name(const std::vector<std::pair<std::string, double>>& losses);

/// Column titles, as wide as progress_line's columns. `total_steps` sets the width of the step column.
std::string progress_header(std::int64_t total_steps);
std::string progress_line(const ProgressLine& line, std::int64_t total_steps);

/// Seconds for people: "0:07", "12:34", "1:02:03", "3d 04:05"; "-" when negative, not finite or beyond 10,000 days.
std::string format_duration(double seconds);

/// Prints progress lines to the log, with the header before every 20th, and estimates the time that remains.
class Progress {
 public:
  Progress(Log& log, std::int64_t total_steps) : log_(log), total_steps_(total_steps) {}

  /// Sets line.remaining_seconds from a running mean of the seconds per token (steps may grow), and prints.
  void print(ProgressLine line);

  /// The next line gets a header (something else was printed in between).
  void repeat_header() { lines_ = 0; }

 private:
  static constexpr std::int64_t kLinesPerHeader = 20;

  Log& log_;
  std::int64_t total_steps_;
  std::int64_t lines_ = 0;
  RecentMean token_seconds_;
};

}  // namespace megatron
