// The code that a backend's libraries choose on this host, for the layers above, which do not know backends.
#pragma once

#include <string>

namespace megatron {

/// One line, as the CPU backend says it; a device's own libraries are not told.
std::string chosen_code_path();

}  // namespace megatron
