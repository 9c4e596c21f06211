// Stop signals: SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask the run to save and stop; a second one ends it at once.
//
// The one piece of process-wide state in the program: a signal handler has no argument through which it could reach an
// object. It is a single flag in stop_signals.cpp; only one StopSignals exists at a time (with ranks as threads of one
// process they share it), and everything else receives it by reference.
#pragma once

#include <array>
#include <csignal>
#include <string>

#include "base/system/launcher.h"

namespace megatron {

class StopSignals {
 public:
  /// Installs the handlers, on the thread that computes, clears the flag and ignores SIGPIPE (a reader of our output
  /// may go away). A hang-up signal that was being ignored (nohup) stays ignored. Errors: internal, if another
  /// StopSignals exists. `launcher`: its process, whose SIGTERM is no request to save (from_launcher).
  explicit StopSignals(pid_t launcher = launcher_process());
  /// Restores what was installed before, unless the signals are ignored by then.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the first stop signal received, 0 while there was none. Cheap: polled every step. This rank's own:
  /// ranks must agree on stopping by communicating.
  int received() const;

  /// Whether that was a SIGTERM of the launcher itself: Open MPI ends the job, since a rank has died or a user has
  /// stopped it, and kills what is left, usually a second later.
  bool from_launcher() const;

  /// For messages: "Ctrl-C", "SIGTERM", ...; of SIGUSR1 from scripts/launch.sh the signal that the script received.
  std::string reason() const { return reason_for(received()); }
  static std::string reason_for(int signal);

  /// For a run that has stopped with a good checkpoint: no signal disturbs the way out any more. Launchers that see one
  /// rank leave with a non-zero code (75) terminate the others, which are leaving too.
  void ignore_from_now_on();

  /// "SIGTERM" and so on, for messages; "a signal" for numbers that stop nothing.
  static const char* name_of(int signal);

 private:
  static constexpr std::array<int, 4> kStopSignals = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

  std::array<struct sigaction, kStopSignals.size()> previous_{};
  struct sigaction previous_pipe_ {};
  pid_t launcher_;
  bool ignored_ = false;
};

}  // namespace megatron
