// The text of a new input file: what was answered, with a comment for each key.
#pragma once

#include <span>
#include <string>

#include "planning/new_input/draft.h"
#include "planning/new_input/questions.h"

namespace megatron {

/// TOML, in the schema's order. `path` is the file's, for the commands in its first lines.
std::string input_text(const Draft& draft, std::span<const Question> questions, const std::string& path);

/// The command that trains with the file on the draft's ranks.
std::string training_command(const Draft& draft, const std::string& path);

}  // namespace megatron
