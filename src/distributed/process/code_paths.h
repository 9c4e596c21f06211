// Code paths: hosts whose processors or libraries differ compute other bits than equal hosts would. The program is the
// same on all of them, but libraries choose their code by what they find.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// A warning that names hosts and paths, both by rank; "" where all ranks have the same path.
std::string code_path_warning(const std::vector<std::string>& hosts, const std::vector<std::string>& paths);

}  // namespace megatron
