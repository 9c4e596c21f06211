#include "base/terminal/interrupt_flag.h"

#include <unistd.h>

#include "base/core/error.h"
#include "base/system/signal_stack.h"

namespace megatron {

namespace {

volatile std::sig_atomic_t raised_signal = 0;

void on_interrupt(int signal) {
  if (raised_signal != 0) ::_exit(128 + signal);
  raised_signal = signal;
}

}  // namespace

InterruptFlag::InterruptFlag(std::span<const int> signals) {
  raised_signal = 0;
  const struct sigaction action = action_on_signal_stack(on_interrupt);
  for (const int signal : signals) {
    struct sigaction previous {};
    internal_check(::sigaction(signal, nullptr, &previous) == 0, "the handler of a signal");
    if (previous.sa_handler == SIG_IGN) continue;
    internal_check(::sigaction(signal, &action, nullptr) == 0, "a handler for a signal");
    previous_.emplace_back(signal, previous);
  }
}

InterruptFlag::~InterruptFlag() {
  for (const auto& [signal, previous] : previous_) ::sigaction(signal, &previous, nullptr);
}

int InterruptFlag::raised() const {
  return raised_signal;
}

void InterruptFlag::clear() {
  raised_signal = 0;
}

}  // namespace megatron
