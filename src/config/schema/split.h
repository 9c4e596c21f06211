// The value of data.split: shares of training, validation and test.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace megatron {

/// Up to three numbers of at least 0, "a,b,c" or "a/b/c", in order training, validation, test; absent ones are 0.
/// Nothing if the text is something else, a number is above 1e15 or all are 0.
std::optional<std::array<double, 3>> parse_split(std::string_view text);

}  // namespace megatron
