// RunLimits: when a run is to end by itself, checkpoint included: run.max_minutes after the program started, at the end
// of the batch job (SLURM_JOB_END_TIME), or because a file STOP was put into the run directory.
//
// Rank 0 has the only one: clocks and file systems differ between machines, so the ranks must agree on its word by
// communicating. It is told how long steps and saves take, and knows nothing else of the training.
#pragma once

#include <optional>
#include <string>

#include "base/core/timers.h"

namespace megatron {

struct TimeLimits {
  double started = 0;                ///< reading of the steady clock when the program started
  double max_minutes = 0;            ///< from then on; 0: none
  std::optional<double> job_ends{};  ///< seconds since 1970
};

class RunLimits {
 public:
  /// `clock`: seconds from any fixed point, never going back.
  RunLimits(const TimeLimits& limits, const std::string& run_directory, Timers::Clock clock = Timers::steady_seconds);

  void step_took(double seconds);
  void save_took(double seconds);

  /// The reason to stop, in words for a message; empty: continue. To be asked before each step: a time limit counts as
  /// reached when another step and a save might not end before it. Looks at the file about once a second.
  std::string reached();

  /// For the banner: "in 59 min by run.max_minutes"; empty without a time limit.
  std::string description() const;

 private:
  bool stop_file();

  Timers::Clock clock_;
  std::string stop_path_;
  double started_;
  std::optional<double> ends_;  // the nearer limit, by clock_
  std::string limit_;           // and its name
  double step_ = 0, save_ = 0, looked_ = -1e9;
};

/// run_directory/STOP: while it exists, the run does not train. Only people create and remove it.
std::string stop_file_path(const std::string& run_directory);
/// Whether it exists; a file system that cannot be asked counts as no.
bool stop_file_exists(const std::string& run_directory);

/// The value of SLURM_JOB_END_TIME, or nothing if there is none that can be read.
std::optional<double> parse_job_end(const char* text);

}  // namespace megatron
