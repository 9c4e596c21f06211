// Standard output for texts: at once, past all buffers, and with an error where no reader is left, so that a closed
// pipe ends the computation.
#pragma once

#include <string_view>

namespace megatron {

/// Error(filesystem) if it cannot be written. SIGPIPE must be ignored.
void print_text(std::string_view text);

}  // namespace megatron
