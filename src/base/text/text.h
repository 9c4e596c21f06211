// Pieces of English and of layout that several programs' messages share. Knows nothing of what they say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

/// Lines of more than 100 characters are continued below, ten columns to the right; for lines that begin with a word.
std::string wrapped(const std::string& text);

/// "1 rank", "8 ranks".
std::string counted(std::int64_t count, std::string_view noun);

/// `text` with control characters other than line ends and tabs as \xNN, and those of Unicode that steer a terminal or
/// the direction of a line as \uNNNN; other UTF-8 passes unchanged.
std::string printable(std::string_view text);

}  // namespace megatron
