// Characters of UTF-8 text, for lines of a limited width.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// The first `count` characters of UTF-8; a text that has no more is whole.
std::string first_characters(std::string_view text, std::size_t count);

}  // namespace megatron
