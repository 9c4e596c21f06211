// Native16Bit: whether weight products of bf16 use the CPU's instructions for it or widen it to f32 (run.native_16bit).
// Both sum in f32 and round at the same places, in different orders; the instructions take subnormal numbers for 0.
#pragma once

namespace megatron {

enum class Native16Bit {
  automatic,  ///< where they are faster
  on,         ///< where it has them; an error elsewhere
  off,
};

}  // namespace megatron
