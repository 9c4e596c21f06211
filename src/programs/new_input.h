// megatron_train --new FILE: questions on standard error, answers from standard input, the plan on standard output.
#pragma once

#include <string>

namespace megatron {

/// Without MPI, on one rank. Returns the exit code; errors as make_input_file (planning/new_input/wizard.h).
int new_input(const std::string& path);

}  // namespace megatron
