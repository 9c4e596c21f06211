#include "monitoring/metrics/run_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>

#include "base/system/terminal_window.h"
#include "base/text/characters.h"
#include "base/text/text.h"
#include "monitoring/metrics/progress.h"

namespace megatron {

namespace {

constexpr double kInterval = 0.1;  // seconds between two looks
constexpr double kFirstQuietLimit = 5, kQuietLimitGrowth = 3, kMostQuietLimit = 600;
constexpr double kShortStep = 5;      // seconds: shorter ones are reported as such, without their micro-batches
constexpr double kLauncherGrace = 3;  // seconds from Open MPI's SIGTERM to its SIGKILL: 1 unless it is told otherwise
constexpr const char* kStep = "step";

}  // namespace

std::string about(double seconds) {
  if (seconds < 99.5) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 99.5 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

RunWatch::RunWatch(Log& log, const StopSignals& signals, const PassProgress& passes, const SavedStep& saved,
                   std::int64_t steps, Timers::Clock clock, bool own_thread)
    : log_(log),
      signals_(signals),
      steps_(steps),
      passes_(passes),
      saved_(saved),
      clock_(clock),
      began_(clock()),
      moved_(began_),
      quiet_since_(began_),
      quiet_limit_(kFirstQuietLimit) {
  if (!own_thread || !log.enabled()) return;
  // Signals are for the thread that computes.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RunWatch::~RunWatch() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
  log_.show_status("");
}

void RunWatch::watch() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, std::chrono::duration<double>(kInterval), [this] { return end_; })) return;
    }
    look();
  }
}

void RunWatch::begin(std::string_view what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  began_ = clock_();
  if (what_.empty()) log_.show_status("");
}

void RunWatch::begin_step(std::int64_t step) {
  begin(kStep);
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void RunWatch::end_step(double seconds, double loss, double remaining_seconds) {
  const std::lock_guard lock(mutex_);
  step_seconds_ = seconds;
  loss_ = loss;
  remaining_seconds_ = remaining_seconds;
}

void RunWatch::look() {
  const double now = clock_();
  const std::lock_guard lock(mutex_);
  if (what_.empty()) return;
  follow_passes(now);
  acknowledge(now);
  if (log_.terminal().live()) return log_.show_status(bar(now));
  report(now);
}

void RunWatch::follow_passes(double now) {
  const double fraction = passes_.fraction();
  if (fraction == fraction_ && moved_ >= began_) return;
  fraction_ = fraction;
  moved_ = fraction > 0 ? now : began_;
}

// By the passes or by the step before, whichever is longer: an update from a disk takes longer than passes. While no
// pass ends, the time to go runs down: a rank that waits for one that is gone promises nothing.
double RunWatch::step_remains(double now) const {
  const double by_last_step = step_seconds_ < 0 ? -1 : step_seconds_ - (now - began_);
  if (fraction_ == 0) return by_last_step;
  const double by_passes = fraction_ == 1 ? 0 : (moved_ - began_) * (1 - fraction_) / fraction_ - (now - moved_);
  return std::max(by_passes, by_last_step);
}

// Where a rank has died, Open MPI ends the others by SIGTERM: no save can be promised then.
bool RunWatch::launcher_ends_job(double now) {
  if (!signals_.from_launcher()) return false;
  if (launcher_since_ < 0) {
    launcher_since_ = now;
    const std::string saved = saved_.words();
    if (!SavedStep::told_by_script() && !saved.empty()) log_.info("SIGTERM from mpirun, which ends the job; {}", saved);
  }
  return now - launcher_since_ < kLauncherGrace;
}

void RunWatch::acknowledge(double now) {
  if (acknowledged_ || signals_.received() == 0 || launcher_ends_job(now)) return;
  acknowledged_ = true;
  std::string when = "as soon as the run is ready";
  if (what_ == kStep) {
    const double remains = step_remains(now);
    when = fmt::format("after step {}{}", step_, remains < 0 ? "" : ", in about " + about(remains));
  } else if (what_ != "starting") {
    when = fmt::format("after this ({})", what_);
  }
  log_.info("{}: saving and stopping {}; a second signal ends the run at once, without saving", signals_.reason(),
            when);
}

std::string RunWatch::where(double now) const {
  const double elapsed = now - began_;
  if (what_ != kStep) return fmt::format("{}, {} so far", what_, about(elapsed));
  if (step_seconds_ >= 0 && step_seconds_ < kShortStep && elapsed < kShortStep) {
    return fmt::format("step {} of {}, {:.2g} s per step", step_, steps_, step_seconds_);
  }
  const auto micro_batches = static_cast<double>(passes_.micro_batches());
  std::string text = fmt::format("step {}: ", step_);
  if (micro_batches > 1 && fraction_ < 1) {
    text += fmt::format("micro-batch {:.0f} of {:.0f}, ", 1 + std::floor(fraction_ * micro_batches), micro_batches);
  }
  const double remains = step_remains(now);
  if (remains > 0) return text + fmt::format("ends in about {}", about(remains));
  text += about(elapsed) + " so far";
  return fraction_ > 0 && fraction_ < 1 ? text + fmt::format(", no pass has ended for {}", about(now - moved_)) : text;
}

void RunWatch::report(double now) {
  if (const std::uint64_t lines = log_.lines(); lines != lines_) {
    lines_ = lines;
    quiet_since_ = now;
  }
  if (now - quiet_since_ < quiet_limit_) return;
  quiet_limit_ = std::min(kQuietLimitGrowth * quiet_limit_, kMostQuietLimit);
  log_.info(where(now));
}

// "[=====>      ] 12/5000  loss 3.1416  step 13: micro-batch 2 of 8, ends in about 12 s  1:02:03 left"
std::string RunWatch::bar(double now) const {
  std::string words;
  const bool stepping = what_ == kStep;
  if (step_seconds_ >= 0) words += fmt::format("  loss {:.4f}", loss_);
  if (!stepping || !(step_seconds_ >= 0 && step_seconds_ < kShortStep)) words += "  " + where(now);
  if (acknowledged_) words += "  stopping";
  const bool overdue = stepping && step_seconds_ >= 0 && step_remains(now) < -kShortStep;
  if (remaining_seconds_ >= 0 && !overdue) words += fmt::format("  {} to go", format_duration(remaining_seconds_));
  const std::int64_t done = std::max<std::int64_t>(0, step_ - 1);
  std::string counts = fmt::format(" {}/{}", done, steps_);
  const Terminal& terminal = log_.terminal();
  const int room = columns_now(terminal) - 1 - static_cast<int>(counts.size());
  const int width = std::clamp(room - static_cast<int>(words.size()) - 2, 8, 30);
  const double within = stepping ? passes_.fraction() : 0;
  const double fraction = (static_cast<double>(done) + within) / static_cast<double>(std::max<std::int64_t>(1, steps_));
  const auto full = static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * width);
  words = first_characters(printable(words), static_cast<std::size_t>(std::max(0, room - width - 2)));
  const std::string filled(full, '='), empty(static_cast<std::size_t>(width) - full, ' ');
  return terminal.colour ? fmt::format("[\x1b[32m{}\x1b[0m{}]{}{}", filled, empty, counts, words)
                         : fmt::format("[{}{}]{}{}", filled, empty, counts, words);
}

}  // namespace megatron
