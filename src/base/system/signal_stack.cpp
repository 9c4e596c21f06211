#include "base/system/signal_stack.h"

#include <cstddef>
#include <vector>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::size_t kStackBytes = 64 << 10;  // a frame with all vector registers needs a few kB

class SignalStack {
 public:
  void use() {
    stack_t current{}, own{};
    internal_check(::sigaltstack(nullptr, &current) == 0, "the stack of signal handlers");
    if ((current.ss_flags & SS_DISABLE) == 0) return;
    memory_.resize(kStackBytes);
    own.ss_sp = memory_.data();
    own.ss_size = memory_.size();
    internal_check(::sigaltstack(&own, nullptr) == 0, "a stack for signal handlers");
  }
  ~SignalStack() {
    stack_t current{};
    if (memory_.empty() || ::sigaltstack(nullptr, &current) != 0 || current.ss_sp != memory_.data()) return;
    current.ss_flags = SS_DISABLE;
    ::sigaltstack(&current, nullptr);
  }

 private:
  std::vector<std::byte> memory_;
};

thread_local SignalStack signal_stack;

}  // namespace

struct sigaction action_on_signal_stack(void (*handler)(int), int flags) {
  signal_stack.use();
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

}  // namespace megatron
