// Which documents are for training, validation and test: "969,30,1" as Megatron-LM splits.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace megatron {

/// Three weights, in order training, validation, test; fewer are filled with zeros. "a,b,c" or "a/b/c".
/// ErrorKind::configuration if they are not numbers >= 0 with a positive sum.
std::array<double, 3> parse_split(std::string_view text);

/// Boundaries {0, b1, b2, documents}: part p holds the documents [b[p], b[p + 1]).
std::array<std::uint64_t, 4> split_documents(std::uint64_t documents, const std::array<double, 3>& weights);

}  // namespace megatron
