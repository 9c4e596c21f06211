// The name of the machine this process runs on, for messages that say which one to look at.
#pragma once

#include <string>

namespace megatron {

std::string host_name();

}  // namespace megatron
