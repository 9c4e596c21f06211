// megatron_train --watch RUN: follows a run from another terminal, through the files that it writes. Reads only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distributed/process/stop_signals.h"
#include "monitoring/reports/run_record.h"

namespace megatron {

/// Reads a metrics.jsonl as it grows. A file that is replaced, as when the run resumes, is read anew.
class MetricsFollower {
 public:
  explicit MetricsFollower(std::string path) : path_(std::move(path)) {}

  /// Adds lines that are complete since the last call, until `stop`; begins with new curves where the file is another
  /// one. Whether anything has changed.
  bool read_on(RunCurves& curves, const std::function<bool()>& stop = nullptr);
  /// When the file was written last, in seconds since 1970; 0: there is none.
  double written() const { return written_; }

 private:
  std::string path_;
  std::uint64_t position_ = 0, device_ = 0, file_ = 0;
  double written_ = 0;
};

struct WatchView {
  int columns = 80, rows = 24;
  bool curve = true, braille = true;
};

/// A view of a run: lines of at most `columns` characters, fewer than `rows` of them. `now`: seconds since 1970.
std::vector<std::string> watch_lines(const RunRecord& run, double now, const WatchView& view);

/// Shows the run until it ends, and returns 0 then, and after Ctrl-C; 128 and the number of any other signal. Where
/// standard output is no terminal, prints once how the run is doing. Errors: configuration, if there is no such run;
/// filesystem.
int watch_run(const std::string& directory, const StopSignals& signals);

}  // namespace megatron
