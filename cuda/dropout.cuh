// Dropout masks on the device: the same function of (key, sample, head, position, index) as on every backend; the
// contract is Dropout's in ops/ops.h.
#pragma once

#include "base/philox.h"
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

/// The multipliers of indices first_index ... of a row of the mask, `width` of them side by side: 1, or a power of two
/// up to 8 that divides first_index. One call of Philox has eight draws.
template <int width>
__device__ __forceinline__ Vector<float, width> dropout_scales(std::uint64_t key, std::uint32_t position,
                                                               std::uint32_t head, std::uint32_t sample,
                                                               std::int64_t first_index, std::int32_t threshold,
                                                               float scale) {
  const uint4 words = philox_words({static_cast<std::uint32_t>(first_index / 8), position, head, sample}, key);
  Vector<float, width> scales;
  const unsigned first_lane = width == 8 ? 0 : static_cast<unsigned>(first_index % 8);
  for (unsigned i = 0; i < width; ++i) {
    const unsigned lane = first_lane + i, word = lane / 2;
    const std::uint32_t pair = word < 2 ? (word == 0 ? words.x : words.y) : (word == 2 ? words.z : words.w);
    const auto draw = static_cast<std::int32_t>((pair >> (16 * (lane % 2))) & 0xFFFFu);
    scales.values[i] = draw >= threshold ? scale : 0.0f;
  }
  return scales;
}

}  // namespace megatron
