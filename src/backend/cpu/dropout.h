// Dropout masks: a pure function of (key, sample, head, position, index), the same on every layout.
//
// Knows nothing of tensors: it fills a row of multipliers. Used by dropout.cpp (index = hidden element, head 0) and by
// attention (index = key position, position = query position); optimizer.cpp rounds by the draws alone (index = column,
// position = row). Contract: Dropout in backend/ops/ops.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "backend/ops/dropout_rule.h"
#include "base/core/philox.h"

namespace megatron {

/// The row of the mask that indices run along.
struct DropoutRow {
  std::uint64_t key = 0;
  std::uint32_t position = 0, head = 0, sample = 0;
};

inline constexpr std::int64_t kDropoutLanes = 8;    ///< 16-bit draws of one Philox call
inline constexpr std::int64_t kDropoutBlock = 128;  ///< draws of one vectorised block: 16 Philox calls side by side

/// draws[8 i + j] = 16-bit lane j of the Philox call of indices 8 (first_group + i) ...; i < 16.
inline void dropout_draws(const DropoutRow& row, std::uint32_t first_group, std::uint16_t* draws) {
  static_assert(std::endian::native == std::endian::little, "lane 2i of a draw is the low half of word i");
  constexpr int calls = kDropoutBlock / kDropoutLanes;
  // philox4x32<7> with each word in the low half of a 64-bit lane, where vector units have the widening product as one
  // instruction; what gathers in the high halves is ignored until the end.
  constexpr std::uint64_t low = 0xFFFFFFFFu;
  std::uint64_t pairs[2][calls];
  for (int i = 0; i < calls; ++i) {
    std::uint64_t c0 = first_group + static_cast<std::uint32_t>(i), c1 = row.position, c2 = row.head, c3 = row.sample;
    auto k0 = static_cast<std::uint32_t>(row.key), k1 = static_cast<std::uint32_t>(row.key >> 32);
    for (int round = 0; round < 7; ++round) {
      const std::uint64_t p0 = (c0 & low) * kPhiloxMultiplier0, p1 = (c2 & low) * kPhiloxMultiplier1;
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0;
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    pairs[0][i] = (c0 & low) | (c1 << 32);
    pairs[1][i] = (c2 & low) | (c3 << 32);
  }
  std::uint64_t in_order[2 * calls];
  for (int i = 0; i < calls; ++i) {
    in_order[2 * i] = pairs[0][i];
    in_order[2 * i + 1] = pairs[1][i];
  }
  std::memcpy(draws, in_order, sizeof in_order);
}

/// scales[i] = rule.scale where index first_index + i is kept, else 0, for i < count. first_index >= 0, any alignment.
inline void dropout_scales(const DropoutRow& row, const DropoutRule& rule, std::int64_t first_index, std::int64_t count,
                           float* scales) {
  alignas(64) std::uint16_t draws[kDropoutBlock];
  const std::int32_t threshold = rule.threshold;
  const float scale = rule.scale;
  std::int64_t skipped = first_index % kDropoutLanes;
  auto group = static_cast<std::uint32_t>(first_index / kDropoutLanes);
  while (count > 0) {
    dropout_draws(row, group, draws);
    const std::int64_t taken = std::min(count, kDropoutBlock - skipped);
    if (taken == kDropoutBlock) {  // a fixed trip count vectorises without remainder loops
#pragma omp simd
      for (int i = 0; i < kDropoutBlock; ++i) scales[i] = draws[i] >= threshold ? scale : 0.0f;
    } else {
      for (std::int64_t i = 0; i < taken; ++i) scales[i] = draws[skipped + i] >= threshold ? scale : 0.0f;
    }
    scales += taken;
    count -= taken;
    skipped = 0;
    group += kDropoutBlock / kDropoutLanes;
  }
}

}  // namespace megatron
