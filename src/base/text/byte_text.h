// Sizes in bytes as programs print them, in powers of 1024.
#pragma once

#include <string>

namespace megatron {

/// "512 B", "1.5 KiB", "20.0 MiB", "3.25 GiB".
std::string format_bytes(double bytes);

}  // namespace megatron
