// Guesses of the next tokens from the text so far (prompt look-up decoding, Saxena 2023): what followed the last time
// that the text was as it is now. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// The `count` tokens that followed the latest earlier occurrence of the last three tokens of `text`, or else of the
/// last two, or of the last one; past the end of the text what was guessed is repeated. None where there is no
/// occurrence.
std::vector<std::int32_t> look_up(std::span<const std::int32_t> text, std::int64_t count);

}  // namespace megatron
