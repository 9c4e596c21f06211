// A terminal for tests: what is typed on it, what it shows, and its modes. The side that a program works on is
// program(); it may be handed to a child process.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/process.h"

class PseudoTerminal {
 public:
  /// Skips the test, outside of its assertions, where the system has no pseudo-terminal, as in a bare chroot.
  explicit PseudoTerminal(unsigned short columns = 80) {
    struct winsize size {};
    size.ws_row = 24;
    size.ws_col = columns;
    if (::openpty(&person_, &program_, nullptr, nullptr, &size) != 0)
      skip_test("no pseudo-terminal here (is /dev/pts mounted?)");
    for (const int end : {person_, program_}) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~PseudoTerminal() {
    ::close(person_);
    if (program_ >= 0) ::close(program_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  int program() const { return program_; }

  /// Starts a program whose controlling terminal, input and output this is, as after a login.
  pid_t start(Command command, const std::string& directory = ".") const {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child > 0) return child;
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::login_tty(::dup(program_));
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    if (::chdir(directory.c_str()) == 0) ::execvp(words[0], words.data());
    ::_exit(127);
  }
  /// Waits for the end of a program: its exit code, or 128 + the signal that ended it.
  static int exit_code(pid_t child) {
    int status = -1;
    for (int waited = 0; waited < kBusy * 6000 && ::waitpid(child, &status, WNOHANG) != child; ++waited)
      pause_milliseconds(5);
    ::kill(child, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void type(std::string_view keys) const {
    if (::write(person_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) FAIL("keys cannot be typed");
  }
  tcflag_t modes() const {
    struct termios now {};
    REQUIRE(::tcgetattr(person_, &now) == 0);
    return now.c_lflag;
  }
  /// All that has been printed so far.
  const std::string& printed() {
    struct pollfd waited {
      .fd = person_, .events = POLLIN, .revents = 0
    };
    char some[4096];
    while (::poll(&waited, 1, 0) > 0) {
      const ssize_t count = ::read(person_, some, sizeof some);
      if (count <= 0) break;
      printed_.append(some, static_cast<std::size_t>(count));
    }
    return printed_;
  }
  /// Waits until `part` has been printed, after `from` bytes; false after `seconds`.
  bool wait_for(std::string_view part, std::size_t from = 0, double seconds = 20) {
    for (int waited = 0; waited < kBusy * seconds * 100; ++waited) {
      if (printed().find(part, from) != std::string::npos) return true;
      pause_milliseconds(10);
    }
    return false;
  }
  /// The rows of the screen, of characters of one column.
  std::string screen() {
    std::string done, row;
    std::size_t at = 0;
    const std::string& text = printed();
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        at = 0;
      } else if (text[i] == '\n') {
        done += row + '\n';
        row.clear();
      } else if (text[i] == '\x1b') {
        const std::size_t last = text.find_first_not_of("[0123456789", i + 1);
        if (text[last] == 'K') row.resize(std::min(row.size(), at));
        i = last;
      } else {
        row.resize(std::max(row.size(), at + 1), ' ');
        row[at++] = text[i];
      }
    }
    return done + row;
  }

 private:
  int person_ = -1, program_ = -1;
  std::string printed_;
};
