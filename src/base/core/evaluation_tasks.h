// The table of evaluation tasks: their names and options, for the keys of input files and for options of programs. What
// a task does is in src/data/evaluation_tasks, whose table has the same names.
#pragma once

#include <array>
#include <string_view>

namespace megatron {

struct EvaluationTaskRow {
  std::string_view name;
  bool has_stride = false;      ///< reads a text in windows
  bool has_labels = false;      ///< can have the answers in a file by themselves
  bool has_whole_word = false;  ///< can ask for the last word instead of the last token
};

inline constexpr std::array kEvaluationTasks{
    EvaluationTaskRow{.name = "wikitext", .has_stride = true},
    EvaluationTaskRow{.name = "text", .has_stride = true},
    EvaluationTaskRow{.name = "lambada", .has_whole_word = true},
    EvaluationTaskRow{.name = "choices", .has_labels = true},
};

}  // namespace megatron
