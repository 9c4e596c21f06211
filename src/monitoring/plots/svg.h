// Text in SVG and HTML.
#pragma once

#include <string>

namespace megatron {

/// Text of any characters for the inside of an element or of a quoted attribute, on one line.
std::string escaped(const std::string& text);

}  // namespace megatron
