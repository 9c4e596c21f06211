// Shards on the borders of matrices: the layout of a store of which some parameters are updated as whole matrices. Each
// copy owns whole ones, shared out by the cost of their update.
//
// A unit is one parameter, or several that lie side by side. Units of a bucket go to the copies by the longest first,
// the others of a bucket (biases, norms) to those that have least. Tables of embeddings and heads are in other buckets,
// which are cut into equal parts.
#pragma once

#include <vector>

#include "distributed/parallel/parameter.h"

namespace megatron {

/// A bucket of matrices ends after a layer once the unused ends of its parts, which are as long as the longest, are at
/// most this share of what is used: after about as many layers as there are copies, often after fewer. What is left at
/// the end of a stage joins the bucket before it if that saves more. So a stack of a dozen GPT-2 layers is not padded
/// on 2 or 4 copies and by less than 6 % on 8, and no copy has 4 % more work than the mean; with more layers it is
/// padded by less than 9 %. On copies that are more than its layers it is padded by up to a half.
inline constexpr double kMostPadding = 0.08;
/// If all of a stage together would need more padding than this (fewer than about a layer for four copies), its buckets
/// of matrices are not padded: their gradients are all-reduced, and owners broadcast new values.
inline constexpr double kTooMuchPadding = 0.5;

/// Elements at whose multiples parameters and parts begin: 64 bytes of f32.
inline constexpr std::int64_t kFlatAlignment = 16;
constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Sets the places of all parameters and returns their buckets, of at least `enough` elements where more follow.
/// Depends on sizes, costs, roles, layers and copy groups alone: all tensor ranks have the same, and the copies of a
/// group the same of its buckets.
std::vector<Bucket> lay_out_matrix_shards(std::vector<Parameter>& parameters, Shards shards, std::int64_t enough);

}  // namespace megatron
