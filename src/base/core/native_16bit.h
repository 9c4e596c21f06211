// Native16Bit: whether matrices of bf16 are multiplied by the CPU's bf16 instructions, where it has them, or widened to
// f32 first (run.native_16bit). Both sum in f32, in different orders; the instructions take subnormal numbers for 0,
// and native attention rounds two factors more.
#pragma once

namespace megatron {

enum class Native16Bit {
  automatic,  ///< where they are faster
  on,         ///< where it has them; an error elsewhere
  off,
};

}  // namespace megatron
