// Questions with choices, out of JSON lines of our own form and of published files: HellaSwag, PIQA, ARC and MMLU, each
// recognised by its keys, MMLU also as CSV. Their prompts are those of EleutherAI's evaluation harness.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/evaluation_tasks/example_text.h"

namespace megatron {

struct Question {
  std::string context;
  std::vector<std::string> choices;
  std::size_t answer = 0;  ///< number of the right one, from 0
};

/// Calls `take` with each question, which has at least one choice, and the line that it is of. Error(data) with the
/// line for what is wrong, or where no answer is known: that of the file, or, if there are any, of input.labels.
void visit_questions(const TaskInput& input,
                     const std::function<void(const ExampleLine& line, const Question& question)>& take);

}  // namespace megatron
