// The files that a task's examples are read from.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// The contents of a regular file of at most 1 GiB. Error(data) if there is none or it is larger.
std::string read_example_file(const std::string& path);

/// A file itself; of a folder all its files whose names end with `ending`, those of folders in it too, in the order of
/// their names. Error(data) if it has none.
std::vector<std::string> example_files(const std::string& path, const std::string& ending);

}  // namespace megatron
