// megatron_generate --interactive: prompts from a pipe and from a terminal.
#include <utmp.h>

#include <csignal>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"

namespace {

Command generate(const std::vector<std::string>& options) {
  Command command = {generate_program(), straight_run(kOneRank)};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

Finished in_shell(const std::string& script) {
  return run_command({"bash", "-c", script}, 60);
}

}  // namespace

TEST_CASE("generation: typed prompts, and Ctrl-C at the prompt", "[fault-83]") {
  const Finished finished =
      in_shell("printf 'Once\\nTwice' | " + quoted(generate({"--interactive", "--max-new-tokens", "4", "--greedy"})));
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(finished.out.starts_with("Once"));
  CHECK(mentions(finished.out, "\nTwice"));
  // An answer that would be long ends with the signal, and the next prompt is answered.
  const TemporaryFolder folder;
  const std::string out = folder.file("out");
  const std::string command = quoted(generate({"--interactive", "--max-new-tokens", "1000000000", "--greedy"}));
  const Finished interrupted =
      in_shell("exec 3> >(exec " + command + " > " + out + "); pid=$!; echo Once >&3; until grep -aq Once " + out +
               "; do sleep 0.1; done; kill -INT $pid; echo Twice >&3; until grep -aq Twice " + out +
               "; do sleep 0.1; done; kill -INT $pid; exec 3>&-; wait $pid");
  INFO(interrupted.err);
  CHECK(interrupted.code == 0);
  CHECK(contents_of(out).starts_with("Once"));
  CHECK(mentions(contents_of(out), "\nTwice"));
}

namespace {

/// `command` with this terminal as its standard input and output, and its own for errors.
pid_t start_at(const PseudoTerminal& terminal, Command command, const char* kind) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child > 0) return child;
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::login_tty(::dup(terminal.program()));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
  ::setenv("TERM", kind, 1);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

int exit_code(pid_t child) {
  int status = -1;
  for (int waited = 0; waited < 6000 && ::waitpid(child, &status, WNOHANG) != child; ++waited) pause_milliseconds(5);
  ::kill(child, SIGKILL);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("generation: prompts are edited on a terminal and its state is restored", "[fault-83]") {
  PseudoTerminal terminal;
  const tcflag_t modes = terminal.modes();
  const pid_t child = start_at(terminal, generate({"--interactive", "--max-new-tokens", "4", "--greedy"}), "xterm");
  REQUIRE(terminal.wait_until_raw());
  terminal.type("Onca\x1b[De\x1b[C\x7f\r");
  CHECK(terminal.wait_for("\nOnce"));
  const std::size_t first = terminal.printed().size();
  REQUIRE(terminal.wait_until_raw());
  terminal.type("\x1b[A again");
  CHECK(terminal.wait_for("> Once again"));
  terminal.type("\x03");
  CHECK(terminal.wait_for("^C", first));
  REQUIRE(terminal.wait_until_raw());
  terminal.type("\x1b[A\r");
  CHECK(terminal.wait_for("\nOnce", first));
  pause_milliseconds(200);
  REQUIRE(terminal.wait_until_raw());
  const bool ends = GENERATE(true, false);
  if (ends)
    terminal.type("\x04");
  else
    ::kill(child, SIGTERM);
  CHECK(exit_code(child) == (ends ? 0 : 128 + SIGTERM));
  CHECK(terminal.modes() == modes);
  // The same prompt has the same text.
  const std::string screen = terminal.screen();
  CHECK(screen.starts_with("Ctrl-C ends an answer, Ctrl-D the program.\n> Once\nOnce"));
  CHECK(mentions(screen, "\n> Once again^C\n> Once\nOnce"));
}

TEST_CASE("generation: a terminal that cannot redraw has plain lines") {
  PseudoTerminal terminal;
  const pid_t child = start_at(terminal, generate({"--interactive", "--max-new-tokens", "4", "--greedy"}), "dumb");
  REQUIRE(terminal.wait_for("\n> "));
  CHECK_FALSE(terminal.raw());
  terminal.type("Once\n");
  CHECK(terminal.wait_for("\nOnce"));
  terminal.type("\x04");
  CHECK(exit_code(child) == 0);
  CHECK_FALSE(mentions(terminal.printed(), "\x1b"));
}
