#include "programs/new_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "generation/interrupt_flag.h"
#include "generation/line_editor.h"
#include "generation/line_reader.h"
#include "programs/program.h"
#include "system/terminal.h"
#include "wizard/wizard.h"

namespace megatron {

namespace {

constexpr std::size_t kLongestAnswer = 1 << 16;
constexpr const char* kSign = "> ";

/// Catches Ctrl-C while it waits for an answer. Whenever else it comes it ends the program: nothing is written yet.
class Interruptible : public LineSource {
 public:
  explicit Interruptible(std::unique_ptr<LineSource> input) : input_(std::move(input)) {}
  Outcome next(std::string& line) override {
    const InterruptFlag flag(kCtrlC);
    return input_->next(line);
  }

 private:
  std::unique_ptr<LineSource> input_;
};

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

int new_input(const std::string& path) {
  verify(launcher_ranks() == 1, ErrorKind::configuration,
         "--new {}: one process asks questions; start it without a launcher", path);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  const bool edits = terminal && ::isatty(STDERR_FILENO) != 0 && terminal_redraws();
  const Terminal shown = standard_terminal();
  const Voice voice{
      .print = print, .sign = edits ? "" : kSign, .echo = !terminal, .colour = shown.live() && shown.colour};
  std::unique_ptr<LineSource> input;
  if (edits) {
    input = std::make_unique<LineEditor>(STDIN_FILENO, kSign, print, kLongestAnswer);
  } else {
    input = std::make_unique<LineReader>(STDIN_FILENO, kLongestAnswer);
  }
  Interruptible answers(std::move(input));
  const NewInput made = make_input_file(path, answers, voice);
  std::cout << made.report;
  return made.exit_code;
}

}  // namespace megatron
