// InterruptFlag: a signal asks for the end of what is being made, not of the program. A second one before the first was
// taken note of ends the program at once, with 128 + its number.
#pragma once

#include <csignal>
#include <span>
#include <utility>
#include <vector>

namespace megatron {

/// Ctrl-C, and the SIGUSR1 that scripts/launch.sh makes of it.
inline constexpr int kCtrlC[] = {SIGINT, SIGUSR1};
/// All that usually end a program.
inline constexpr int kEndingSignals[] = {SIGINT, SIGUSR1, SIGTERM, SIGHUP};

/// One at a time: a signal handler reaches only a flag of the process.
class InterruptFlag {
 public:
  /// Installs the handlers. Waiting reads end with EINTR. A signal that was being ignored stays ignored.
  explicit InterruptFlag(std::span<const int> signals);
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  int raised() const;  ///< the signal; 0: none
  void clear();

 private:
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace megatron
