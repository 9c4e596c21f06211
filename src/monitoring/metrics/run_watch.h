// RunWatch: the signs of life of a run. A thread of the rank that speaks, which acknowledges a stop signal at once,
// says where the run is when nothing has been printed for long, and on a terminal draws a progress bar.
//
// The run tells it what it is doing; it only reads and prints. Lines on the way come after 5 seconds without any other
// line, then after three times as long, up to every ten minutes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/core/timers.h"
#include "base/system/log.h"
#include "distributed/process/saved_step.h"
#include "distributed/process/stop_signals.h"
#include "monitoring/metrics/pass_progress.h"

namespace megatron {

class RunWatch {
 public:
  /// The references must outlive it. `steps`: of the whole run. With `own_thread` false look() is the caller's to call.
  RunWatch(Log& log, const StopSignals& signals, const PassProgress& passes, const SavedStep& saved, std::int64_t steps,
           Timers::Clock clock = Timers::steady_seconds, bool own_thread = true);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  /// "loading", "evaluating on validation", ... "" when the run is at its end and nothing more is to be said.
  void begin(std::string_view what);
  void begin_step(std::int64_t step);
  /// `loss` and `remaining_seconds` (not finite: unknown) are for the bar.
  void end_step(double seconds, double loss, double remaining_seconds);

  void look();

 private:
  void watch();
  void follow_passes(double now);
  void acknowledge(double now);
  bool launcher_ends_job(double now);
  void report(double now);
  std::string where(double now) const;
  std::string bar(double now) const;
  /// Seconds to the end of this step, at the speed of the passes that have ended; negative: unknown, or overdue.
  double step_remains(double now) const;

  Log& log_;
  const StopSignals& signals_;
  const std::int64_t steps_;
  const PassProgress& passes_;
  const SavedStep& saved_;
  const Timers::Clock clock_;
  std::mutex mutex_;  // guards all below
  std::condition_variable ended_;
  bool end_ = false, acknowledged_ = false;
  std::string what_ = "starting";  // empty: the end
  std::int64_t step_ = 0;          // the step under way, if what_ is "step"
  double launcher_since_ = -1;     // when the launcher's SIGTERM was seen
  double began_, moved_;           // moved_: when fraction_, of the step's passes, was last seen to change
  double fraction_ = 0, step_seconds_ = -1, loss_ = 0, remaining_seconds_ = -1;
  std::uint64_t lines_ = 0;
  double quiet_since_, quiet_limit_;
  std::thread thread_;
};

/// "5 s", "3 min", "2.5 h", "12 days": for estimates.
std::string about(double seconds);

}  // namespace megatron
