// Lines of a pipe: whole ones whatever pieces come, long ones, a last one without end, and signals. Lines of a
// terminal.
#include "base/terminal/line_reader.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "base/terminal/interrupt_flag.h"
#include "support/pseudo_terminal.h"
#include "support/require_error.h"

using namespace megatron;
using Outcome = LineReader::Outcome;

namespace {

class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_.data()) == 0); }
  ~Pipe() {
    close_writer();
    ::close(ends_[0]);
  }
  int reader() const { return ends_[0]; }
  void write(const std::string& text) {
    REQUIRE(::write(ends_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void expect_line(LineReader& reader, const std::string& wanted) {
  std::string line;
  CHECK(reader.next(line) == Outcome::line);
  CHECK(line == wanted);
}

}  // namespace

TEST_CASE("line reader: lines are whole whatever pieces they come in") {
  Pipe pipe;
  LineReader reader(pipe.reader());
  pipe.write("one\ntwo");
  expect_line(reader, "one");
  pipe.write(" more\n\nthr");
  expect_line(reader, "two more");
  expect_line(reader, "");
  pipe.write("ee");
  pipe.close_writer();
  expect_line(reader, "three");
  std::string line;
  CHECK(reader.next(line) == Outcome::end);
  CHECK(reader.next(line) == Outcome::end);
}

TEST_CASE("line reader: a line that is too long is skipped and the next one read") {
  Pipe pipe;
  LineReader reader(pipe.reader(), 8);
  pipe.write("12345678\n123456789\nshort\n" + std::string(1000, 'x'));
  expect_line(reader, "12345678");
  std::string line;
  CHECK(reader.next(line) == Outcome::too_long);
  expect_line(reader, "short");
  pipe.write(std::string(1000, 'y') + "\nnext\n" + std::string(50, 'z'));
  CHECK(reader.next(line) == Outcome::too_long);
  expect_line(reader, "next");
  pipe.close_writer();
  CHECK(reader.next(line) == Outcome::too_long);
  CHECK(reader.next(line) == Outcome::end);
}

TEST_CASE("line reader: a signal ends the waiting, and what has come stays") {
  Pipe pipe;
  LineReader reader(pipe.reader());
  InterruptFlag flag(kCtrlC);
  const pthread_t waiting = ::pthread_self();
  std::string line;
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::pthread_kill(waiting, SIGINT);
  });
  CHECK(flag.raised() == 0);
  pipe.write("beg");
  CHECK(reader.next(line) == Outcome::interrupted);
  sender.join();
  CHECK(flag.raised() == SIGINT);
  flag.clear();
  CHECK(flag.raised() == 0);
  pipe.write("un\n");
  expect_line(reader, "begun");
}

TEST_CASE("line reader: a terminal's keys, Ctrl-D, a signal, and a hangup", "[fault-83]") {
  std::optional<PseudoTerminal> terminal(std::in_place);
  const int descriptor = ::dup(terminal->program());
  LineReader reader(descriptor);
  InterruptFlag flag(kCtrlC);
  const pthread_t waiting = ::pthread_self();
  std::string line;
  terminal->type(
      "helo\x7f"
      "lo\nnext\n");
  expect_line(reader, "hello");
  expect_line(reader, "next");
  terminal->type("in two \x04pieces\n");
  expect_line(reader, "in two pieces");
  terminal->type("lost\x04");
  std::thread sender([&] {
    pause_milliseconds(100);
    ::pthread_kill(waiting, SIGINT);
  });
  CHECK(reader.next(line) == Outcome::interrupted);
  sender.join();
  terminal->type("kept\n");
  expect_line(reader, "kept");
  std::thread leaving([&] {
    pause_milliseconds(100);
    terminal.reset();
  });
  CHECK(reader.next(line) == Outcome::end);
  leaving.join();
  ::close(descriptor);
}

TEST_CASE("line reader: a stream that cannot be read is an error") {
  LineReader reader(-1);
  std::string line;
  test::require_error(ErrorKind::filesystem, {"standard input cannot be read"}, [&] { reader.next(line); });
}
