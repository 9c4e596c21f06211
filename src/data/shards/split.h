// Cuts a token set's documents or tokens into training, validation and test by three shares (data.split).
#pragma once

#include <array>
#include <cstdint>

namespace megatron {

/// Bounds b of the three parts: part p holds [b[p], b[p + 1]); b[0] = 0 and b[3] is the whole.
using SplitBounds = std::array<std::uint64_t, 4>;

// Shares are at least 0 with a positive sum, of any scale.

/// As Megatron-LM of 2022 splits documents: each share of them is rounded, and the surplus of the sum is taken from all
/// boundaries.
SplitBounds split_rounding_parts(std::uint64_t documents, const std::array<double, 3>& shares);

/// As megatron-core splits documents, and this program the tokens of small sets: the boundaries are the cumulative
/// shares, each rounded once (half to even).
SplitBounds split_rounding_boundaries(std::uint64_t count, const std::array<double, 3>& shares);

/// A set of fewer documents is cut by tokens where data.split_by = "auto": 0.1 % of them, the smallest of the default
/// shares, is less than a document.
inline constexpr std::uint64_t kFewDocuments = 1000;

}  // namespace megatron
