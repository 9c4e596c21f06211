#include "monitor/run_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>

#include "monitor/progress.h"
#include "system/terminal_window.h"
#include "text/characters.h"
#include "text/text.h"

namespace megatron {

namespace {

constexpr double kInterval = 0.1;  // seconds between two looks
constexpr double kFirstQuietLimit = 5, kQuietLimitGrowth = 3, kMostQuietLimit = 600;
constexpr double kShortStep = 5;  // seconds: shorter ones are reported as such, without their micro-batches
constexpr const char* kStep = "step";

}  // namespace

std::string about(double seconds) {
  if (seconds < 99.5) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 99.5 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

RunWatch::RunWatch(Log& log, const StopSignals& signals, const PassProgress& passes, std::int64_t steps,
                   Timers::Clock clock, bool own_thread)
    : log_(log),
      signals_(signals),
      steps_(steps),
      passes_(passes),
      clock_(clock),
      began_(clock()),
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
  acknowledge(now);
  if (log_.terminal().live()) return log_.show_status(bar(now));
  report(now);
}

double RunWatch::step_remains(double now) const {
  const double elapsed = now - began_, fraction = passes_.fraction();
  if (fraction > 0 && fraction < 1) return elapsed * (1 - fraction) / fraction;
  if (fraction == 1) return 0;
  return step_seconds_ < 0 ? -1 : std::max(0.0, step_seconds_ - elapsed);
}

void RunWatch::acknowledge(double now) {
  if (acknowledged_ || signals_.received() == 0) return;
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
  if (micro_batches > 1 && passes_.fraction() < 1) {
    text += fmt::format("micro-batch {:.0f} of {:.0f}, ", 1 + std::floor(passes_.fraction() * micro_batches),
                        micro_batches);
  }
  const double remains = step_remains(now);
  return text + (remains > 0 ? fmt::format("about {} left", about(remains)) : about(elapsed) + " so far");
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

// "[=====>      ] 12/5000  loss 3.1416  step 13: micro-batch 2 of 8, about 12 s left  1:02:03 left"
std::string RunWatch::bar(double now) const {
  std::string words;
  const bool stepping = what_ == kStep;
  if (step_seconds_ >= 0) words += fmt::format("  loss {:.4f}", loss_);
  if (!stepping || !(step_seconds_ >= 0 && step_seconds_ < kShortStep)) words += "  " + where(now);
  if (acknowledged_) words += "  stopping";
  if (remaining_seconds_ >= 0) words += fmt::format("  {} to go", format_duration(remaining_seconds_));
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
