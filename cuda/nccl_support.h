// Whether this build has NCCL; included also where it has not.
#pragma once

#include <string>

namespace megatron {

/// "2.28.9", of the library that is loaded; empty: none.
std::string nccl_version();

}  // namespace megatron
