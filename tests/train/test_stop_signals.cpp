#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "base/error.h"
#include "train/stop_signals.h"

using namespace megatron;

namespace {

/// Runs `body` in a child process; returns its exit code, or -signal if a signal killed it.
template <class Body>
int exit_code_of(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The test program's own handlers must not be what is tested.
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("the first stop signal sets the flag, the second ends the process with 128 + its number") {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    CAPTURE(signal);
    CHECK(exit_code_of([&] {
            const StopSignals signals;
            if (signals.received() != 0) return 1;
            std::raise(signal);
            return signals.received() == signal ? 0 : 2;
          }) == 0);
    CHECK(exit_code_of([&] {
            const StopSignals signals;
            std::raise(signal);
            std::raise(signal);
            return 3;
          }) == 128 + signal);
  }
  CHECK(exit_code_of([&] {
          const StopSignals signals;
          std::raise(SIGUSR1);
          std::raise(SIGINT);
          return 3;
        }) == 130);
}

TEST_CASE("a signal from another process interrupts no system call for good") {
  CHECK(exit_code_of([] {
          const StopSignals signals;
          const pid_t parent = ::getpid();
          int ends[2];
          if (::pipe(ends) != 0) return 1;
          if (::fork() == 0) {
            ::kill(parent, SIGTERM);
            ::usleep(50000);
            const bool written = ::write(ends[1], "x", 1) == 1;
            ::_exit(written ? 0 : 1);
          }
          char byte = 0;
          if (::read(ends[0], &byte, 1) != 1) return 2;  // would be EINTR without SA_RESTART
          return signals.received() == SIGTERM ? 0 : 3;
        }) == 0);
}

TEST_CASE("a closed pipe does not kill, nohup's ignored hang-up stays ignored") {
  CHECK(exit_code_of([] {
          const StopSignals signals;
          int ends[2];
          if (::pipe(ends) != 0) return 1;
          ::close(ends[0]);
          return ::write(ends[1], "x", 1) == -1 && signals.received() == 0 ? 0 : 2;
        }) == 0);
  CHECK(exit_code_of([] {
          std::signal(SIGHUP, SIG_IGN);
          const StopSignals signals;
          std::raise(SIGHUP);
          return signals.received();
        }) == 0);
}

TEST_CASE("the handlers before are restored, and a new object begins with a clear flag") {
  CHECK(exit_code_of([] {
          {
            const StopSignals signals;
            std::raise(SIGUSR1);
          }
          {
            const StopSignals signals;
            if (signals.received() != 0) return 1;
          }
          std::raise(SIGTERM);
          return 2;
        }) == -SIGTERM);
}

TEST_CASE("two at a time are refused, and signals have names") {
  CHECK(exit_code_of([] {
          const StopSignals signals;
          try {
            const StopSignals second;
            return 1;
          } catch (const Error& error) {
            return error.kind() == ErrorKind::internal ? 0 : 2;
          }
        }) == 0);
  CHECK(std::string(StopSignals::name_of(SIGTERM)) == "SIGTERM");
  CHECK(std::string(StopSignals::name_of(SIGUSR1)) == "SIGUSR1");
}
