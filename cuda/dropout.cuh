// Dropout masks on the device: the same function of (key, sample, head, position, index) as on every backend; the
// contract is Dropout's in backend/ops/ops.h.
#pragma once

#include "cuda/philox.cuh"

namespace megatron {

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
    scales.values[i] = draw_of(words, first_lane + i) >= threshold ? scale : 0.0f;
  }
  return scales;
}

}  // namespace megatron
