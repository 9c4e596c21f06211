#include "distributed/process/hang_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/core/error.h"
#include "base/core/timers.h"
#include "distributed/comm/group_members.h"

namespace megatron {

namespace {

constexpr double kSecondsToPrint = 60, kSecondsToAbort = 15;  // both may hang themselves
constexpr double kLongestWork = 10;   // limits: a thread that works for longer is lost in a loop
constexpr double kWordsInGrace = 8;   // how often a host speaks and listens
constexpr double kLeastShare = 0.01;  // share of a core: a thread that only waits takes less

/// Ends the process unless it is moved or dropped in time: printing, and words to other hosts, can hang on a file
/// system that does not answer. A separate thread does so, because such a system holds a thread beyond any signal.
class Deadline {
 public:
  explicit Deadline(double seconds) : at_(in(seconds)), thread_([this] { guard(); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      dropped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  void move(double seconds) {
    const std::lock_guard lock(mutex_);
    at_ = in(seconds);
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point in(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  void guard() {
    std::unique_lock lock(mutex_);
    while (!dropped_) {
      if (Clock::now() >= at_) ::_exit(static_cast<int>(ErrorKind::communication));
      changed_.wait_until(lock, at_);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool dropped_ = false;
  Clock::time_point at_;
  std::thread thread_;
};

bool waits(const Activity& activity) {
  return activity.waiting().verb != Verb::none;
}

bool has_others(const HangWatch::Settings& settings) {
  return std::any_of(settings.hosts.begin(), settings.hosts.end(),
                     [&](const std::string& host) { return host != settings.host; });
}

// Phases in which a thread may look busy while it waits for a device.
bool belongs_to_device(std::string_view phase) {
  constexpr std::array kSections = {Section::forward, Section::backward, Section::optimizer, Section::evaluation};
  return std::any_of(kSections.begin(), kSections.end(), [&](Section section) { return phase == name_of(section); });
}

}  // namespace

HangWatch::HangWatch(Activity& own, std::vector<Activity*> ranks, std::int32_t rank, Settings settings)
    : own_(own),
      ranks_(std::move(ranks)),
      own_index_(static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), &own) - ranks_.begin())),
      settings_(std::move(settings)),
      interval_(std::clamp(settings_.limit_seconds / 20, 0.01, 1.0)),
      grace_(std::max(settings_.least_grace, settings_.limit_seconds / 10)),
      seen_(ranks_.size()),
      words_(has_others(settings_) ? settings_.folder : "", settings_.job, settings_.host) {
  own_.set_owner(rank, ::getpid());
  // Signals are for the thread that computes.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
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
}

void HangWatch::know(const GridShape& shape, bool device_computes, const std::string& folder) {
  const std::lock_guard lock(mutex_);
  grid_ = {shape, device_computes, folder};
  moves_words_ = has_others(settings_) && !settings_.folder.empty() && folder != settings_.folder;
}

bool HangWatch::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return stopped_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stop_; });
}

void HangWatch::watch() {
  double before = Timers::steady_seconds();
  const auto look_again = [&] {
    if (wait(interval_)) return false;
    move_words();
    const double now = Timers::steady_seconds();
    const double seconds = std::min(now - before, 2 * interval_);  // not the time for which this process was suspended
    look(seconds);
    say_that_it_works(seconds);
    before = now;
    return true;
  };
  while (look_again()) {
    if (!hangs() || !ranks_.front()->claim_report()) continue;
    Deadline deadline(grace_ + kSecondsToPrint);
    if (report_and_wait(look_again)) {
      deadline.move(kSecondsToAbort);
      settings_.print(last_words());
      settings_.abort();
    } else {
      words_.fall_silent();
    }
    ranks_.front()->release_report();
  }
  words_.fall_silent();
}

void HangWatch::move_words() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(moves_words_, false)) words_.move_to(grid_->folder);
}

// The time between the table and the abort is for other hosts to leave word: in a hang all ranks soon wait for one
// another.
bool HangWatch::report_and_wait(const std::function<bool()>& look_again) {
  settings_.print(table());
  const double reported = longest();
  for (double next = reported; longest() < reported + grace_;) {
    if (!look_again()) return false;
    if (!hangs()) {
      settings_.print("hang: it continues after all; run.hang_minutes is too short for this machine\n");
      return false;
    }
    if (longest() < next) continue;
    next += grace_ / kWordsInGrace;
    words_.say(HangWords::Word::waits);
    const std::optional<std::string> working = working_host();
    if (!working) continue;
    settings_.print(fmt::format("hang: it continues: a rank on {} is at work\n", *working));
    for (Seen& seen : seen_) seen.seconds = seen.idle = 0;
    return false;
  }
  return true;
}

void HangWatch::look(double seconds) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Seen& seen = seen_[i];
    const std::uint64_t changes = ranks_[i]->changes();
    const bool quiet = changes == seen.changes && ranks_[i]->rank() >= 0 && !ranks_[i]->patient();
    seen.changes = changes;
    seen.seconds = quiet ? seen.seconds + seconds : 0;
    seen.idle = quiet && !at_work(*ranks_[i], seen, seconds) ? seen.idle + seconds : 0;
  }
}

bool HangWatch::at_work(const Activity& activity, Seen& seen, double seconds) const {
  if (seen.seconds < settings_.limit_seconds / 4 || waits(activity)) return false;  // it does not matter yet
  if (seen.seconds > kLongestWork * settings_.limit_seconds) return false;
  const ThreadWork before = std::exchange(seen.work, work_of(activity.process()));
  bool device = false;
  {
    const std::lock_guard lock(mutex_);
    device = !grid_ || grid_->device_computes;
  }
  if (device && belongs_to_device(activity.phase().data())) return false;
  return seen.work.bytes != before.bytes || seen.work.cpu_seconds - before.cpu_seconds > kLeastShare * seconds;
}

double HangWatch::longest() const {
  double longest = 0;
  for (const Seen& seen : seen_) longest = std::max(longest, seen.idle);
  return longest;
}

bool HangWatch::active(std::size_t index) const {
  const Activity& activity = *ranks_[index];
  return activity.rank() >= 0 && !activity.patient() && seen_[index].idle < settings_.limit_seconds / 4;
}

// Ranks that wait are not to blame while one that they may be waiting for moves, or is at work.
bool HangWatch::hangs() const {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (active(i)) return false;
  }
  return longest() > settings_.limit_seconds;
}

void HangWatch::say_that_it_works(double seconds) {
  const bool long_wait = std::any_of(seen_.begin(), seen_.end(),
                                     [&](const Seen& seen) { return seen.seconds > settings_.limit_seconds / 2; });
  const bool works = long_wait && active(own_index_);
  if (!works && std::exchange(said_works_, false)) words_.fall_silent();
  since_word_ += seconds;
  if (!works || since_word_ < grace_ / kWordsInGrace) return;
  said_works_ = words_.say(HangWords::Word::works);
  since_word_ = 0;
}

std::optional<std::string> HangWatch::working_host() {
  std::string before;
  for (const std::string& host : settings_.hosts) {
    if (host == std::exchange(before, host) || host == settings_.host) continue;
    if (words_.heard_from(host) == HangWords::Word::works) return host;
  }
  return std::nullopt;
}

std::string HangWatch::last_words() {
  const std::string aborted =
      fmt::format("hang: the job is aborted with exit code {}\n", static_cast<int>(ErrorKind::communication));
  if (!words_.say(HangWords::Word::waits)) return aborted;
  std::map<std::string, std::vector<std::size_t>> silent;
  bool first = true;
  for (std::size_t rank = 0; rank < settings_.hosts.size(); ++rank) {
    const std::string& host = settings_.hosts[rank];
    if (host == settings_.host) {
      first = false;  // hosts from here on are after this one
    } else if (silent.contains(host) || words_.heard_from(host) == HangWords::Word::none) {
      silent[host].push_back(rank);
    } else if (first) {
      return "";  // that one says it
    }
  }
  std::string text;
  for (const auto& [host, ranks] : silent) {
    text += fmt::format("{}{} (rank{} {})", text.empty() ? "hang: no word from " : ", ", host,
                        ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  }
  return (text.empty() ? "" : text + "\n") + aborted;
}

std::string HangWatch::line(std::size_t index) const {
  const Activity& activity = *ranks_[index];
  std::string text =
      fmt::format("hang: rank {} on {}, process {} ({}), for {:.1f} s: {}", activity.rank(), settings_.host,
                  activity.process(), state_of(activity.process()), seen_[index].seconds, describe(activity));
  const Waiting waiting = activity.waiting();
  if (waiting.verb == Verb::none || waiting.peer < 0) return text + "\n";
  std::optional<int> peer;
  {
    const std::lock_guard lock(mutex_);
    if (grid_) peer = world_rank_of(grid_->shape, activity.group().data(), activity.rank(), waiting.peer);
  }
  if (peer) {
    const auto at = static_cast<std::size_t>(*peer);
    text += fmt::format(", which is rank {} of the job{}", *peer,
                        at < settings_.hosts.size() ? " on " + settings_.hosts[at] : "");
  }
  return text + "\n";
}

std::string HangWatch::table() const {
  std::string text = fmt::format(
      "hang: a rank on {} has been in one operation for longer than run.hang_minutes = {:g}; what all of them do "
      "there:\n",
      settings_.host, settings_.limit_seconds / 60);
  std::string suspects;
  bool anybody_waits = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->rank() < 0) continue;
    text += line(i);
    if (waits(*ranks_[i])) {
      anybody_waits = true;
    } else {
      suspects += fmt::format("{}{}", suspects.empty() ? "" : ", ", ranks_[i]->rank());
    }
  }
  if (anybody_waits && !suspects.empty())
    text += fmt::format("hang: the others may be waiting for rank {}\n", suspects);
  return text;
}

}  // namespace megatron
