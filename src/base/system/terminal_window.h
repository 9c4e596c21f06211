// Size and abilities of a terminal's window now, for pictures made of characters.
#pragma once

#include "base/system/terminal.h"

namespace megatron {

/// Columns of the terminal now, as a window's size changes; under a launcher, which does not tell, those at the start.
int columns_now(const Terminal& terminal);
/// Rows of standard output's terminal; 24 where that is not known.
int terminal_rows();
/// Whether the locale says that texts are UTF-8.
bool terminal_has_unicode();

}  // namespace megatron
