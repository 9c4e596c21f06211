// The texts of evaluation tasks, out of JSON lines of any form: LAMBADA, questions with choices, RACE.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Calls take(text) for each string that is the value of a member of one of these names, at any depth, or in an array
/// that is. `paths`: files, also gzip, zstd and bzip2, and folders. ErrorKind::data with file and line for what is no
/// JSON.
void visit_task_texts(const std::vector<std::string>& paths, const std::vector<std::string>& fields,
                      const std::function<void(std::string_view text)>& take);

}  // namespace megatron
