// Lines that are typed on a terminal: what comes of the keys, what is seen, and that the terminal is given back.
#include "generation/line_editor.h"

#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "generation/interrupt_flag.h"
#include "support/pseudo_terminal.h"
#include "support/require_error.h"

using namespace megatron;
using Outcome = LineSource::Outcome;

namespace {

struct Desk {
  explicit Desk(unsigned short columns = 80, std::size_t longest = 1000)
      : terminal(columns),
        editor(
            terminal.program(), "> ",
            [this](const std::string& text) {
              if (::write(terminal.program(), text.data(), text.size()) < 0) ::abort();
            },
            longest) {}

  /// Result of next() for these keys, typed once it listens; without keys, for those typed before.
  Outcome after(const std::string& keys, std::string& line) {
    if (keys.empty()) return editor.next(line);
    const tcflag_t modes = terminal.modes();
    std::thread person([&] {
      if (terminal.wait_until_raw()) terminal.type(keys);
    });
    const Outcome outcome = editor.next(line);
    person.join();
    CHECK(terminal.modes() == modes);
    return outcome;
  }
  std::string line(const std::string& keys) {
    std::string line;
    CHECK(after(keys, line) == Outcome::line);
    return line;
  }

  PseudoTerminal terminal;
  LineEditor editor;
};

/// `body` in a new process and process group, as shells start programs.
template <class Body>
pid_t start(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  ::_exit(body());
}

int status_of(pid_t child, int options = 0) {
  int status = -1;
  for (int waited = 0; waited < 4000; ++waited) {
    if (::waitpid(child, &status, options | WNOHANG) == child) return status;
    pause_milliseconds(5);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  FAIL("a process that should have ended");
  return status;
}

}  // namespace

TEST_CASE("line editor: what is typed, and corrected with the usual keys") {
  Desk desk;
  CHECK(desk.line("plain\r") == "plain");
  CHECK(desk.line("helo\x1b[Dl\r") == "hello");
  CHECK(desk.line("orld\x01w\x05!\n") == "world!");
  CHECK(desk.line("one two\x17three\r") == "one three");
  CHECK(desk.line("lost\x15kept gone\x1b[D\x1b[D\x1b[D\x1b[D\x0b\r") == "kept ");
  CHECK(desk.line("na\xc3\xafve\x7f\x7f\x7fy\r") == "nay");
  CHECK(desk.line("abc\x1b[H\x1b[3~\x04\r") == "c");
  CHECK(desk.line("\r").empty());
}

TEST_CASE("line editor: what is seen") {
  Desk desk(12);
  CHECK(desk.line("abcdef\x1b[D\x1b[D\x1b[Dxy\x7f\r") == "abcxdef");
  CHECK(desk.terminal.screen() == "> abcxdef\n");
  // Nine columns for text: the end of a longer line.
  CHECK(desk.line("0123456789abc\r") == "0123456789abc");
  CHECK(desk.terminal.screen() == "> abcxdef\n> 456789abc\n");
  std::string line;
  CHECK(desk.after("oops\x03", line) == Outcome::interrupted);
  CHECK(desk.terminal.screen() == "> abcxdef\n> 456789abc\n> oops^C");
}

TEST_CASE("line editor: earlier lines and the one begun come back") {
  Desk desk;
  desk.line("first\r");
  desk.line("second\r");
  desk.line("second\r");
  CHECK(desk.line("\x1b[A!\r") == "second!");
  CHECK(desk.line("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\r") == "first");
  CHECK(desk.line("begun\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B more\r") == "begun more");
}

TEST_CASE("line editor: several lines at once and keys in pieces and typing ahead") {
  Desk desk;
  CHECK(desk.line("one\rtwo\rthr") == "one");
  CHECK(desk.line("") == "two");
  CHECK(desk.line("ee\r") == "three");
  std::string line;
  std::thread slow([&] {
    if (!desk.terminal.wait_until_raw()) return;
    for (const char key : std::string("ac\x1b[Db\xc3\xa9\r")) {
      desk.terminal.type(std::string(1, key));
      pause_milliseconds(20);
    }
  });
  CHECK(desk.editor.next(line) == Outcome::line);
  slow.join();
  CHECK(line == "abéc");
  desk.terminal.type("typed\nahea");
  CHECK(desk.line("") == "typed");
  CHECK(desk.line("d\r") == "ahead");
}

TEST_CASE("line editor: Ctrl-D on an empty line or ahead and a lost terminal") {
  std::string line;
  Desk empty, ahead;
  CHECK(empty.after("\x04", line) == Outcome::end);
  ahead.terminal.type("last\n\x04");
  CHECK(ahead.line("") == "last");
  CHECK(ahead.editor.next(line) == Outcome::end);
  test::require_error(ErrorKind::filesystem, {"the terminal cannot be read"},
                      [&] { LineEditor(-1, "", [](const std::string&) {}).next(line); });
}

TEST_CASE("line editor: a line that is too long is left out") {
  Desk desk(80, 4);
  std::string line;
  CHECK(desk.after("12345\r", line) == Outcome::too_long);
  CHECK(desk.line("1234\r") == "1234");
}

TEST_CASE("line editor: a signal can end the waiting without ending the program") {
  Desk desk;
  InterruptFlag flag(kCtrlC);
  const tcflag_t modes = desk.terminal.modes();
  const pid_t own = ::getpid();
  for (int again = 0; again < 2; ++again) {
    std::string line;
    const std::size_t before = desk.terminal.printed().size();
    std::thread person([&] {
      if (!desk.terminal.wait_until_raw()) return;
      desk.terminal.type("some");
      desk.terminal.wait_for("some", before);  // keys that are not read yet would belong to the next line
      ::kill(own, SIGINT);
    });
    CHECK(desk.editor.next(line) == Outcome::interrupted);
    person.join();
    CHECK(flag.raised() == SIGINT);
    flag.clear();
    CHECK(desk.terminal.modes() == modes);
  }
  CHECK(desk.line("more\r") == "more");
}

TEST_CASE("line editor: every signal that ends the program restores the terminal", "[fault-83]") {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGINT, SIGUSR1, SIGABRT, SIGSEGV}) {
    CAPTURE(signal);
    Desk desk;
    const tcflag_t modes = desk.terminal.modes();
    const pid_t child = start([&] {
      std::string line;
      return static_cast<int>(desk.editor.next(line));
    });
    CHECK(desk.terminal.wait_until_raw());
    ::kill(child, signal);
    const int status = status_of(child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(desk.terminal.modes() == modes);
  }
}

TEST_CASE("line editor: crashes and keys that end programs restore the terminal") {
  const bool crash = GENERATE(false, true);
  CAPTURE(crash);
  Desk desk;
  const tcflag_t modes = desk.terminal.modes();
  const pid_t child = start([&] {
    std::string line;
    std::thread defect([&] {
      if (!crash) return;
      desk.terminal.wait_until_raw();
      *static_cast<volatile int*>(nullptr) = 1;  // NOLINT
    });
    desk.editor.next(line);
    return 0;
  });
  if (!crash) {
    CHECK(desk.terminal.wait_until_raw());
    desk.terminal.type("\x1c");
  }
  const int status = status_of(child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == (crash ? SIGSEGV : SIGQUIT));
  CHECK(desk.terminal.modes() == modes);
}

TEST_CASE("line editor: Ctrl-Z restores the terminal until the program continues") {
  Desk desk;
  const tcflag_t modes = desk.terminal.modes();
  const pid_t child = start([&] {
    std::string line;
    return desk.editor.next(line) == Outcome::line && line == "before and after" ? 0 : 1;
  });
  CHECK(desk.terminal.wait_until_raw());
  desk.terminal.type("before\x1a");
  CHECK(WIFSTOPPED(status_of(child, WUNTRACED)));
  CHECK(desk.terminal.modes() == modes);
  ::kill(child, SIGCONT);
  CHECK(desk.terminal.wait_until_raw());
  desk.terminal.type(" and after\r");
  CHECK(status_of(child) == 0);
  CHECK(desk.terminal.modes() == modes);
}
