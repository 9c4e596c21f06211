// Records of comma-separated values: cells may be in double quotes, which are doubled within, and then have commas and
// line ends. For published files of questions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/evaluation_tasks/example_text.h"

namespace megatron {

/// Calls `take` with each record that is not blank, and the line that it begins on. Error(data) with that line for
/// another number of cells than `columns`, or a quote that is not closed; and if there is no record.
void visit_csv(const TaskInput& input, std::size_t columns,
               const std::function<void(const ExampleLine& line, const std::vector<std::string>& cells)>& take);

}  // namespace megatron
