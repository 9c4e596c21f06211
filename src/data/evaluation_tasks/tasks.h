// The tasks that the table of task.cpp lists. docs/evaluation.md says what each of them does.
#pragma once

#include "data/evaluation_tasks/task.h"

namespace megatron {

/// The text of WikiText as a whole, without its marks, in overlapping windows.
std::unique_ptr<EvaluationTask> make_wikitext(const TaskInput& input);
/// Any text as a whole, as it is, in overlapping windows.
std::unique_ptr<EvaluationTask> make_plain_text(const TaskInput& input);
/// JSON lines {text}: the last token, or word, of each.
std::unique_ptr<EvaluationTask> make_lambada(const TaskInput& input);
/// JSON lines {context, choices, answer}: the likeliest choice.
std::unique_ptr<EvaluationTask> make_choices(const TaskInput& input);

}  // namespace megatron
