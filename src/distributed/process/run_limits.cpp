#include "distributed/process/run_limits.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>

namespace megatron {

namespace {

constexpr double kSecondsBetweenLooks = 1;
// Steps and saves of a shared machine are not all equally long; the second is what a process needs to leave.
constexpr double kStepMargin = 1.25, kSaveMargin = 1.5, kSecondsToLeave = 1;
constexpr double kForgetting = 0.9;  // how much of the longest step is still believed a step later
// How long a save takes is unknown before the first one: this share of the whole time is kept free until then.
constexpr double kShareForUnknownSave = 0.05, kMostForUnknownSave = 600;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string local_time(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  return ::localtime_r(&whole, &parts) == nullptr ? "" : fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

}  // namespace

RunLimits::RunLimits(const TimeLimits& limits, const std::string& run_directory, Timers::Clock clock)
    : clock_(clock), stop_path_(stop_file_path(run_directory)), started_(limits.started) {
  if (limits.max_minutes > 0) {
    ends_ = limits.started + 60 * limits.max_minutes;
    limit_ = fmt::format("run.max_minutes = {}", limits.max_minutes);
  }
  if (!limits.job_ends) return;
  const double job = clock_() + *limits.job_ends - seconds_since_1970();
  if (ends_ && *ends_ <= job) return;
  ends_ = job;
  limit_ = "SLURM_JOB_END_TIME (" + local_time(*limits.job_ends) + ")";
}

void RunLimits::step_took(double seconds) {
  step_ = std::max(seconds, kForgetting * step_);
}

void RunLimits::save_took(double seconds) {
  save_ = std::max(save_, seconds);
}

std::string RunLimits::reached() {
  if (ends_) {
    const double unknown = std::clamp(kShareForUnknownSave * (*ends_ - started_), 0.0, kMostForUnknownSave);
    const double save = save_ > 0 ? kSaveMargin * save_ : unknown;
    if (clock_() + kStepMargin * step_ + save + kSecondsToLeave > *ends_) return limit_;
  }
  return stop_file() ? stop_path_ : "";
}

bool RunLimits::stop_file() {
  if (clock_() - looked_ < kSecondsBetweenLooks) return false;
  looked_ = clock_();
  return ::access(stop_path_.c_str(), F_OK) == 0;
}

std::string RunLimits::description() const {
  if (!ends_) return "";
  return fmt::format("in {:.1f} min by {}", std::max(0.0, *ends_ - clock_()) / 60, limit_);
}

std::string stop_file_path(const std::string& run_directory) {
  return run_directory + "/STOP";
}

bool stop_file_exists(const std::string& run_directory) {
  return ::access(stop_file_path(run_directory).c_str(), F_OK) == 0;
}

std::optional<double> parse_job_end(const char* text) {
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  // 0 and numbers near 2^32 are Slurm's ways to say "not set" and "unlimited".
  if (end == text || *end != '\0' || !(seconds > 0) || seconds >= 4294967294.0) return std::nullopt;
  return seconds;
}

}  // namespace megatron
