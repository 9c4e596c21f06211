// Random words on the device: base/core/philox.h's function, which nvcc would make of 64-bit multiplications.
#pragma once

#include "base/core/philox.h"
#include "cuda/kernel.cuh"

namespace megatron {

/// philox4x32<7>, in 32-bit instructions.
__device__ __forceinline__ uint4 philox_words(uint4 c, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    c = {__umulhi(kPhiloxMultiplier1, c.z) ^ c.y ^ k0, kPhiloxMultiplier1 * c.z,
         __umulhi(kPhiloxMultiplier0, c.x) ^ c.w ^ k1, kPhiloxMultiplier0 * c.x};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

/// 16-bit lane `lane` of four words: the draw of one index (Dropout in backend/ops/ops.h).
__device__ __forceinline__ std::int32_t draw_of(const uint4& words, unsigned lane) {
  const unsigned word = lane / 2;
  const std::uint32_t pair = word < 2 ? (word == 0 ? words.x : words.y) : (word == 2 ? words.z : words.w);
  return static_cast<std::int32_t>((pair >> (16 * (lane % 2))) & 0xFFFFu);
}

}  // namespace megatron
