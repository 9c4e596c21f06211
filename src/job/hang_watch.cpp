#include "job/hang_watch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "base/timers.h"

namespace megatron {

namespace {

constexpr double kShortestGrace = 2;      // seconds between the table and the abort
constexpr unsigned kSecondsToAbort = 60;  // for the printing and the abort, which may hang themselves

extern "C" void on_alarm(int) {
  ::_exit(static_cast<int>(ErrorKind::communication));
}

// What the system says about a process of this node: "R" runs, "S" sleeps, "D" waits for a disk, "T" is stopped.
std::string state_of(std::int32_t process) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), text);
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos || close + 2 >= text.size()) return "gone";
  switch (text[close + 2]) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting for a disk";
    case 'T':
    case 't': return "stopped";
    case 'Z': return "dead";
    default: return "alive";
  }
}

}  // namespace

HangWatch::HangWatch(Activity& own, std::vector<Activity*> ranks, std::int32_t rank, Settings settings)
    : own_(own),
      ranks_(std::move(ranks)),
      settings_(std::move(settings)),
      interval_(std::clamp(settings_.limit_seconds / 20, 0.01, 1.0)),
      seen_(ranks_.size()) {
  own_.set_owner(rank, ::getpid());
  // Signals are for the thread that computes, but for the alarm: that thread may be beyond reach.
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  sigaddset(&before, SIGALRM);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HangWatch::~HangWatch() {
  own_.set_owner(-1, 0);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
}

bool HangWatch::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return stopped_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stop_; });
}

void HangWatch::watch() {
  double before = Timers::steady_seconds();
  const auto look_again = [&] {
    if (wait(interval_)) return false;
    const double now = Timers::steady_seconds();
    look(std::min(now - before, 2 * interval_));  // not the time for which this process was suspended
    before = now;
    return true;
  };
  const double grace = std::max(kShortestGrace, settings_.limit_seconds / 10);
  while (look_again()) {
    if (longest() <= settings_.limit_seconds || !ranks_.front()->claim_report()) continue;
    std::signal(SIGALRM, on_alarm);
    ::alarm(static_cast<unsigned>(grace) + kSecondsToAbort);
    settings_.print(table());
    const double reported = longest();
    bool still = true;
    while (still && longest() < reported + grace) {
      if (!look_again()) {
        ::alarm(0);
        return ranks_.front()->release_report();
      }
      still = longest() > settings_.limit_seconds;
    }
    if (still) {
      settings_.print(
          fmt::format("hang: the job is aborted with exit code {}\n", static_cast<int>(ErrorKind::communication)));
      settings_.abort();
    } else {
      settings_.print("hang: it continues after all; run.hang_minutes is too short for this machine\n");
    }
    ::alarm(0);
    ranks_.front()->release_report();
  }
}

void HangWatch::look(double seconds) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::uint64_t changes = ranks_[i]->changes();
    const bool quiet = changes == seen_[i].changes && ranks_[i]->rank() >= 0 && !ranks_[i]->patient();
    seen_[i] = {changes, quiet ? seen_[i].seconds + seconds : 0};
  }
}

double HangWatch::longest() const {
  double longest = 0;
  for (const Seen& seen : seen_) longest = std::max(longest, seen.seconds);
  return longest;
}

std::string HangWatch::table() const {
  std::string text = fmt::format(
      "hang: a rank on {} has been in one operation for longer than run.hang_minutes = {:g}; what all of them do "
      "there:\n",
      settings_.host, settings_.limit_seconds / 60);
  std::string suspects;
  bool anybody_waits = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Activity& activity = *ranks_[i];
    const std::int32_t rank = activity.rank();
    if (rank < 0) continue;
    text += fmt::format("hang: rank {} on {}, process {} ({}), for {:.1f} s: {}\n", rank, settings_.host,
                        activity.process(), state_of(activity.process()), seen_[i].seconds, describe(activity));
    const bool waits = activity.waiting().verb != Verb::none;
    anybody_waits = anybody_waits || waits;
    if (!waits) suspects += fmt::format("{}{}", suspects.empty() ? "" : ", ", rank);
  }
  if (anybody_waits && !suspects.empty())
    text += fmt::format("hang: the others may be waiting for rank {}\n", suspects);
  return text;
}

}  // namespace megatron
