// Options that rows of several tables have.
#pragma once

#include <string>
#include <vector>

namespace megatron::test {

inline const std::vector<std::string> kSequence = {"parallel.sequence_parallel=true"};
inline const std::vector<std::string> kZero = {"parallel.schedule=zero_bubble"};
inline const std::vector<std::string> kBf16 = {"precision.compute=bf16"};

}  // namespace megatron::test
