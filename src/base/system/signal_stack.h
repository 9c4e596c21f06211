// The stack that signal handlers run on: never that of the code they interrupt. oneDNN's matrix kernels may run with
// their stack pointer at the start of a heap buffer, and a signal's frame below it would overwrite whatever lies there;
// and a stack that has overflowed has no room for a handler.
#pragma once

#include <csignal>

namespace megatron {

/// For sigaction(): `handler` runs on the signal stack of the thread that computes, which is the one that calls this.
/// The thread keeps that stack until it ends, or uses the one that it already has. No signal is blocked meanwhile.
struct sigaction action_on_signal_stack(void (*handler)(int), int flags = 0);

}  // namespace megatron
