// JSON of a stranger's file, parsed in a time that grows with its length alone, whatever it holds. (The callbacks of
// nlohmann::json's parser would take the square of the number of objects.)
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace megatron {

/// Error(checkpoint) saying what is wrong unless the text is JSON with at most `deepest` objects and lists inside each
/// other and no key twice in an object.
nlohmann::json parse_strict_json(const std::string& text, std::size_t deepest);

}  // namespace megatron
