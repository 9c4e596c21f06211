#include "generation/raw_terminal.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "system/errno_text.h"

namespace megatron {

namespace {

constexpr std::array kSignals = {SIGINT, SIGUSR1, SIGTERM, SIGHUP, SIGQUIT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMilliseconds = 100;  // until a signal is seen that another thread has got

// State that the signal handler needs.
int terminal = -1;
struct termios usual {};
std::array<struct sigaction, kSignals.size()> previous{};
volatile std::sig_atomic_t entered = 0;

void give_back() {
  if (entered == 0) return;
  ::tcsetattr(terminal, TCSANOW, &usual);  // does not wait for output, which Ctrl-S may have stopped
  entered = 0;
}

/// The signal again, for whom it was meant before.
extern "C" void on_signal_at_prompt(int signal, siginfo_t* info, void*) {
  const int error = errno;
  give_back();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal) ::sigaction(signal, &previous[i], nullptr);
  }
  // An instruction that has failed does so again.
  if (info->si_code <= 0) std::raise(signal);
  errno = error;
}

}  // namespace

RawTerminal::RawTerminal(int descriptor) : descriptor_(descriptor) {
  internal_check(terminal < 0, "two prompts at a time");
  verify(::tcgetattr(descriptor, &usual) == 0, ErrorKind::filesystem, "the terminal cannot be read: {}",
         errno_text(errno));
  terminal = descriptor;
  enter();
}

RawTerminal::~RawTerminal() {
  give_back();
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous[i], nullptr);
  terminal = -1;
}

void RawTerminal::enter() {
  struct sigaction action {};
  action.sa_sigaction = on_signal_at_prompt;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    ::sigaction(kSignals[i], nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal_at_prompt) continue;
    previous[i] = now;
    if (now.sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
  struct termios raw = usual;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  entered = 1;
  ::tcsetattr(descriptor_, TCSADRAIN, &raw);
  if (entered == 0) ::tcsetattr(descriptor_, TCSANOW, &usual);  // a signal has come in between
}

RawTerminal::Event RawTerminal::read(std::string& bytes) {
  while (entered != 0) {
    struct pollfd waited {
      .fd = descriptor_, .events = POLLIN, .revents = 0
    };
    if (::poll(&waited, 1, kMilliseconds) <= 0) continue;
    std::array<char, 4096> some{};
    const ssize_t count = ::read(descriptor_, some.data(), some.size());
    if (count > 0) bytes.append(some.data(), static_cast<std::size_t>(count));
    if (count > 0) return Event::keys;
    if (count == 0 || errno == EIO) return Event::end;
    verify(errno == EINTR || errno == EAGAIN, ErrorKind::filesystem, "the terminal cannot be read: {}",
           errno_text(errno));
  }
  return Event::signal;
}

void RawTerminal::raise(int signal) {
  give_back();
  ::kill(0, signal);
  enter();
}

}  // namespace megatron
