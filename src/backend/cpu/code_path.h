// The code that this host's libraries choose for the CPU backend: numbers differ in their last bits between choices.
#pragma once

#include <string>

namespace megatron {

/// "oneDNN 2.6.3 for AVX512_CORE_BF16, glibc 2.36".
std::string code_path();

}  // namespace megatron
