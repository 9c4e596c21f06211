// megatron_generate --interactive: prompts from a pipe and from a terminal.
#include "faults/checks.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"

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

TEST_CASE("generation: prompts on a terminal, which Ctrl-C drops and Ctrl-D ends", "[fault-83]") {
  PseudoTerminal terminal;
  const tcflag_t modes = terminal.modes();
  const pid_t child = terminal.start(generate({"--interactive", "--max-new-tokens", "4", "--greedy"}));
  REQUIRE(terminal.wait_for("Ctrl-C ends an answer, Ctrl-D the program.\r\n> "));
  CHECK(terminal.modes() == modes);
  const auto answered = [&](const std::string& prompt) {
    const std::size_t before = terminal.printed().size();
    terminal.type(prompt + "\n");
    CHECK(terminal.wait_for(prompt + "\r\n" + prompt, before));
    return terminal.wait_for("\n> ", terminal.printed().find("\r\n" + prompt, before) + 2);
  };
  CHECK(answered("Once"));
  const std::size_t first = terminal.printed().size();
  terminal.type("lost");
  CHECK(terminal.wait_for("lost", first));
  pause_milliseconds(200);  // until it waits
  terminal.type("\x03");
  CHECK(terminal.wait_for("\r\n> ", first));
  CHECK(answered("Twice"));
  terminal.type("\x04");
  CHECK(PseudoTerminal::exit_code(child) == 0);
  CHECK(terminal.printed().ends_with("\n> \r\n"));
}
