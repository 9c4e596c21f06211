#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/system/log.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

/// Runs `body` in a child process with standard output and error in the given files; returns the wait status.
template <class Body>
int in_child(const std::string& out, const std::string& error, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
    ::dup2(::open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
    body();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a reader that stops reading costs lines on the screen, not the run") {
  const TemporaryFolder folder;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    Log log(true, 0.05);
    log.append_to(folder.file("run.log"));
    for (int line = 0; line < 3000; ++line) log.info("line {} of far more than a pipe holds of them", line);
    ::_exit(0);
  }
  ::close(ends[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  ::close(ends[0]);
  const std::string file = contents_of(folder.file("run.log"));
  CHECK(std::count(file.begin(), file.end(), '\n') == 3000);
}

TEST_CASE("log: information and warnings have their streams and run.log has both") {
  const TemporaryFolder folder;
  const std::string run_log = folder.file("run.log");
  const auto body = [&] {
    Log log(true);
    log.info("before the run directory exists");
    log.append_to(run_log);
    log.info("step {} of {}", 3, 10);
    log.info("two\nlines\n");
    log.info("{braces are no format}");
    log.warning("checkpoint {} is damaged", "step_7");
  };
  REQUIRE(in_child(folder.file("out"), folder.file("error"), body) == 0);
  CHECK(contents_of(folder.file("out")) ==
        "before the run directory exists\nstep 3 of 10\ntwo\nlines\n{braces are no format}\n");
  CHECK(contents_of(folder.file("error")) == "warning: checkpoint step_7 is damaged\n");

  std::ifstream file(run_log);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    REQUIRE(line.size() > 21);
    CHECK(line[4] == '-');
    CHECK(line[13] == ':');
    text += line.substr(21) + '\n';
  }
  CHECK(text == "step 3 of 10\ntwo\nlines\n{braces are no format}\nwarning: checkpoint step_7 is damaged\n");
}

TEST_CASE("a second run appends to run.log; silent ranks say and open nothing") {
  const TemporaryFolder folder;
  const auto body = [&] {
    for (int run = 0; run < 2; ++run) {
      Log log(true);
      log.append_to(folder.file("run.log"));
      log.info("run {}", run);
    }
    Log silent(false);
    silent.append_to(folder.file("silent.log"));
    silent.info("nothing");
    silent.warning("nothing {}", 1);
  };
  REQUIRE(in_child(folder.file("out"), folder.file("error"), body) == 0);
  CHECK(contents_of(folder.file("out")) == "run 0\nrun 1\n");
  CHECK(contents_of(folder.file("error")).empty());
  const std::string text = contents_of(folder.file("run.log"));
  CHECK(text.find("run 0\n") != std::string::npos);
  CHECK(text.find("run 1\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("silent.log")));
}

TEST_CASE("log: closed streams and full disks cost lines and nothing else", "[fault-45][fault-48]") {
  const TemporaryFolder folder;
  const std::string run_log = folder.file("run.log");
  const auto body = [&] {
    std::signal(SIGPIPE, SIG_IGN);  // as the training program does
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    keep_standard_streams_open();
    Log log(true);
    log.append_to(run_log);  // must not become descriptor 1, or it would have every line twice
    log.info("only once");
    std::filesystem::remove(run_log);
    log.info("begun anew");
    int pipe_ends[2];
    if (::pipe(pipe_ends) != 0) ::_exit(1);
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::close(pipe_ends[0]);
    log.info("into a broken pipe");

    Log full(true);
    full.append_to("/dev/full");
    full.info("lost");
    Log impossible(true);
    impossible.append_to(folder.file("no_such_folder/run.log"));
    impossible.info("continues");
  };
  REQUIRE(in_child("/dev/full", folder.file("error"), body) == 0);
  const std::string text = contents_of(run_log), error = contents_of(folder.file("error"));
  CHECK(text.find("only once") == std::string::npos);  // that was the deleted file
  CHECK(text.find("begun anew\n") == text.rfind("begun anew\n"));
  CHECK(text.find("begun anew\n") != std::string::npos);
  CHECK(text.find("into a broken pipe\n") != std::string::npos);
  CHECK(error.find("no_such_folder/run.log") != std::string::npos);
}

namespace {

/// Everything that `body` in a child process writes to a terminal of 60 columns. The child keeps the terminal open
/// until all has been read: what is on its way when the last one closes it may be lost.
template <class Body>
std::string on_terminal(const char* kind, Body body) {
  constexpr char kEnd = '\x1e';
  int here = -1, there = -1, read_all[2] = {-1, -1};
  struct winsize size {};
  size.ws_col = 60;
  REQUIRE(::openpty(&here, &there, nullptr, nullptr, &size) == 0);
  REQUIRE(::pipe(read_all) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(read_all[1]);
    ::dup2(there, STDOUT_FILENO);
    ::dup2(there, STDERR_FILENO);
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "NO_COLOR"}) ::unsetenv(name);
    ::setenv("TERM", kind, 1);
    body();
    char none = kEnd;
    const bool told = ::write(STDOUT_FILENO, &none, 1) == 1 && ::read(read_all[0], &none, 1) == 0;
    ::_exit(told ? 0 : 1);
  }
  ::close(there);
  ::close(read_all[0]);
  std::string text;
  char buffer[1000];
  for (ssize_t got = 0; !text.ends_with(kEnd) && (got = ::read(here, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  ::close(read_all[1]);
  if (text.ends_with(kEnd)) text.pop_back();
  int status = -1;
  ::waitpid(child, &status, 0);
  ::close(here);
  REQUIRE(status == 0);
  std::erase(text, '\r');
  return text;
}

void status_and_lines(const std::string& run_log) {
  Log log(true);
  log.append_to(run_log);
  log.info("before");
  log.show_status("12/100");
  log.show_status("12/100");
  log.info("between");
  log.warning("careful");
  log.show_status("");
  log.info("after");
}

}  // namespace

TEST_CASE("log: on a terminal the status line stays below and out of run.log") {
  const PseudoTerminal needed;
  const TemporaryFolder folder;
  const auto body = [&] { status_and_lines(folder.file("run.log")); };
  CHECK(on_terminal("xterm", body) ==
        "before\n\x1b[K12/100\x1b[Kbetween\n12/100\x1b[Kwarning: careful\n12/100\x1b[Kafter\n");
  const std::string file = contents_of(folder.file("run.log"));
  CHECK(file.find("12/100") == std::string::npos);
  CHECK(file.find('\x1b') == std::string::npos);
  CHECK(std::count(file.begin(), file.end(), '\n') == 4);
}

TEST_CASE("log: files, pipes and dumb terminals get no status and no escape codes") {
  const PseudoTerminal needed;
  const TemporaryFolder folder;
  const auto body = [&] { status_and_lines(folder.file("run.log")); };
  CHECK(on_terminal("dumb", body) == "before\nbetween\nwarning: careful\nafter\n");
  REQUIRE(in_child(folder.file("out"), folder.file("error"), body) == 0);
  CHECK(contents_of(folder.file("out")) == "before\nbetween\nafter\n");
  CHECK(contents_of(folder.file("error")) == "warning: careful\n");
}

TEST_CASE("terminal: under a launcher only the launch script and NO_COLOR count") {
  const PseudoTerminal needed;
  const TemporaryFolder folder;
  const auto seen = [](const char* launcher, const char* handed_on, const char* plain) {
    return on_terminal("xterm", [=] {
      if (launcher != nullptr) ::setenv("OMPI_COMM_WORLD_RANK", launcher, 1);
      if (handed_on != nullptr) ::setenv("MEGATRON_TERMINAL", handed_on, 1);
      if (plain != nullptr) ::setenv("NO_COLOR", plain, 1);
      const Terminal terminal = standard_terminal();
      const std::string text = fmt::format("{} {}", terminal.columns, terminal.colour);
      (void)!::write(STDOUT_FILENO, text.data(), text.size());
    });
  };
  CHECK(seen(nullptr, nullptr, nullptr) == "60 true");
  CHECK(seen(nullptr, "100", "1") == "60 false");
  CHECK(seen("0", nullptr, nullptr) == "0 true");
  CHECK(seen("0", "100", "") == "100 true");
  CHECK(seen("0", "-5", nullptr) == "0 true");
}

TEST_CASE("run.log: a link is not followed", "[fault-55]") {
  const TemporaryFolder folder;
  const std::string run_log = folder.file("run.log");
  std::ofstream(folder.file("other")) << "another's";
  std::filesystem::create_symlink("other", run_log);
  const auto body = [&] {
    Log log(true);
    log.append_to(run_log);
    log.info("a line");
  };
  REQUIRE(in_child(folder.file("out"), folder.file("error"), body) == 0);
  CHECK(contents_of(folder.file("other")) == "another's");
  CHECK(contents_of(folder.file("out")) == "a line\n");
  CHECK(contents_of(folder.file("error")).find("cannot write " + run_log) != std::string::npos);
}
