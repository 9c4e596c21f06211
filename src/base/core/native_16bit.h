// Native16Bit: whether a CPU multiplies 16-bit floats by instructions of its own where it has them (run.native_16bit),
// or widens them to f32. Its own round at the same places and sum in f32, but in another order.
#pragma once

namespace megatron {

enum class Native16Bit {
  automatic,  ///< where they are faster
  on,         ///< where it has them; an error elsewhere
  off,
};

}  // namespace megatron
