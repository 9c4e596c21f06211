#include "programs/new_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "base/core/error.h"
#include "base/system/terminal.h"
#include "base/terminal/interrupt_flag.h"
#include "base/terminal/line_reader.h"
#include "planning/new_input/wizard.h"
#include "programs/program.h"

namespace megatron {

namespace {

constexpr std::size_t kLongestAnswer = 1 << 16;

}  // namespace

int new_input(const std::string& path) {
  verify(launcher_ranks() == 1, ErrorKind::configuration,
         "--new {}: one process asks questions; start it without a launcher", path);
  LineReader input(STDIN_FILENO, kLongestAnswer);
  // Catches Ctrl-C while it waits for an answer. Whenever else it comes it ends the program: nothing is written yet.
  const auto next = [&](std::string& answer) {
    const InterruptFlag flag(kCtrlC);
    return input.next(answer);
  };
  const Terminal shown = standard_terminal();
  const Output output{.print = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); },
                      .echo = ::isatty(STDIN_FILENO) == 0,
                      .colour = shown.live() && shown.colour};
  const NewInput made = make_input_file(path, next, output);
  std::cout << made.report;
  return made.exit_code;
}

}  // namespace megatron
