// megatron_train --new: asks for what an input file says, a key at a time, checks each answer, and writes the file.
// The caller decides where answers come from, and how they are shown.
#pragma once

#include <functional>
#include <string>

#include "base/terminal/line_reader.h"

namespace megatron {

/// Waits for the next answer, as LineReader::next() does.
using NextAnswer = std::function<LineReader::Outcome(std::string& answer)>;

/// How questions and answers are shown.
struct Output {
  std::function<void(const std::string& text)> print;
  bool echo = false;  ///< print answers, which no terminal has shown
  bool colour = false;
};

struct NewInput {
  int exit_code = 0;
  std::string report = "";  ///< the plan of the new file, and the next command
};

/// Asks, and writes the file when the last answer was given and its plan could be made: at once, under its name, which
/// must not exist. An empty answer takes the default, `?` explains, `<` returns to the question before.
///
/// Returns 130 after Ctrl-C, with nothing written. Throws Error(configuration) where the file exists already, which is
/// found before the first question, or where answers end early; Error(filesystem) where it cannot be written.
NewInput make_input_file(const std::string& path, const NextAnswer& next, const Output& output);

}  // namespace megatron
