// Shared by the backends for rotary position embedding: the checked extents of a call, and its angles, in integers from
// which whole turns drop out by overflow: an angle is as accurate at a million positions as at one.
#pragma once

#include <cstdint>

#include "backend/ops/arguments.h"
#include "backend/ops/ops.h"

namespace megatron {

struct RotaryShape {
  std::int64_t tokens, heads, pairs;  ///< rows of x are tokens · heads, pairs those that are turned of a row
  const std::int32_t* positions;      ///< [tokens]
  const float* frequencies;           ///< [pairs]

  /// Throws internal errors for dtypes and shapes that break the contract (RotaryArgs). Reads no element.
  explicit RotaryShape(const RotaryArgs& args) {
    internal_check(args.x.rank() == 4, "rotary: x is [s, b, heads, d]", args.x.shape());
    tokens = args.x.dim(0) * args.x.dim(1);
    heads = args.x.dim(2);
    pairs = args.inverse_frequencies.elements();
    internal_check(2 * pairs <= args.x.dim(3), "rotary: more channels to be turned than heads have", 2 * pairs,
                   args.x.dim(3));
    positions = elements_of<std::int32_t>("rotary", args.positions, tokens);
    frequencies = elements_of<float>("rotary", args.inverse_frequencies, pairs);
  }
};

/// How far a frequency in radians a position, from 0 to less than 2π, turns from one position to the next, in units of
/// 2^-64 turns.
constexpr std::uint64_t turns_a_position(float frequency) {
  return static_cast<std::uint64_t>(static_cast<double>(frequency) * 2935890503282001226.5);  // 2^64 / 2π
}

/// The angle at a position, in units of 2^-32 turns.
constexpr std::uint32_t turn_at(std::uint64_t turns, std::int32_t position) {
  return static_cast<std::uint32_t>((turns * static_cast<std::uint64_t>(std::int64_t{position})) >> 32);
}

}  // namespace megatron
