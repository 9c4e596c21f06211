// Expands a path of an input file or an option: the home directory and the environment's variables in place of their
// names, as a shell does. A shell does not expand what is quoted, nor the ~ of --output=~/a.
#pragma once

#include <string>

namespace megatron {

/// `~/` at the beginning, `$NAME` and `${NAME}` replaced, in place. Returns "" or what is wrong; the path is then as it
/// was. What is made has none of these, so that expanding it again changes nothing.
std::string expand_path(std::string& path);

}  // namespace megatron
