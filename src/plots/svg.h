// Pieces of SVG and HTML text.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// Text of any characters for the inside of an element or of a quoted attribute, on one line.
std::string escaped(const std::string& text);

/// The points of a polyline: "12.0,34.5 13.0,33.1".
std::string points(const std::vector<std::pair<double, double>>& places);

}  // namespace megatron
