#include "distributed/process/stop_signals.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "base/core/error.h"
#include "base/system/regular_file.h"
#include "base/system/signal_stack.h"

namespace megatron {

namespace {

std::atomic<int> first_signal{0};
std::atomic<pid_t> first_sender{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may only use lock-free atomics");

/// Async-signal-safe: an atomic exchange and _exit, nothing else. The old checkpoint is whole at any time, so ending
/// in the middle of anything is safe.
extern "C" void on_stop_signal(int signal, siginfo_t* information, void*) {
  int none = 0;
  pid_t none_yet = 0;
  first_sender.compare_exchange_strong(none_yet, information->si_pid);
  if (!first_signal.compare_exchange_strong(none, signal)) ::_exit(128 + signal);
}

/// Contents that scripts/launch.sh has written; nothing if there is no such file.
std::string name_handed_on() try {
  const char* const path = std::getenv("MEGATRON_SIGNAL_FILE");
  if (path == nullptr) return "";
  const RegularFile file(path, ErrorKind::filesystem);
  std::string name(std::min<std::uint64_t>(file.bytes(), 16), '\0');
  file.read(0, name.data(), name.size());
  return name.substr(0, name.find_first_of(" \n"));
} catch (const Error&) {
  return "";
}

}  // namespace

StopSignals::StopSignals(pid_t launcher) : launcher_(launcher) {
  internal_check(!installed.exchange(true), "stop signals are installed once a process");
  first_signal = 0;
  first_sender = 0;
  struct sigaction action = action_on_signal_stack(nullptr, SA_RESTART | SA_SIGINFO);
  action.sa_sigaction = on_stop_signal;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    ::sigaction(kStopSignals[i], nullptr, &previous_[i]);
    const bool ignored = previous_[i].sa_handler == SIG_IGN;
    if (kStopSignals[i] == SIGHUP && ignored) continue;
    ::sigaction(kStopSignals[i], &action, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, &previous_pipe_);
}

void StopSignals::ignore_from_now_on() {
  for (const int signal : kStopSignals) std::signal(signal, SIG_IGN);
  ignored_ = true;
}

StopSignals::~StopSignals() {
  installed = false;
  if (ignored_) return;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) ::sigaction(kStopSignals[i], &previous_[i], nullptr);
  ::sigaction(SIGPIPE, &previous_pipe_, nullptr);
}

int StopSignals::received() const {
  return first_signal.load(std::memory_order_relaxed);
}

bool StopSignals::from_launcher() const {
  return received() == SIGTERM && launcher_ != 0 && first_sender == launcher_;
}

std::string StopSignals::reason_for(int signal) {
  if (signal == SIGUSR1) {
    const std::string name = name_handed_on();
    for (const int handed_on : kStopSignals) {
      if (name == name_of(handed_on)) signal = handed_on;
    }
  }
  return signal == SIGINT ? "Ctrl-C" : name_of(signal);
}

const char* StopSignals::name_of(int signal) {
  switch (signal) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    case SIGHUP: return "SIGHUP";
    default: return "a signal";
  }
}

}  // namespace megatron
