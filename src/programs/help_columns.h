// The width of --help.
#pragma once

namespace megatron {

/// Columns of a line, and of descriptions at least: boost breaks names that are longer than half of a line.
inline constexpr unsigned kHelpColumns = 100, kDescriptionColumns = 60;

}  // namespace megatron
