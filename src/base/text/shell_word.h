// One word of a shell's command line, for commands that messages tell to type.
#pragma once

#include <string>

namespace megatron {

/// The text as it is if no shell takes it for more than a word, else quoted for POSIX shells.
std::string shell_word(const std::string& text);

}  // namespace megatron
