// Samples of two texts for an encoder, as fixed pseudo-random functions of (step, sample): of different lengths, some
// without a label, about a quarter of the tokens masked. And labels of samples for a task, some without one.
#pragma once

#include <vector>

#include "base/core/philox.h"

namespace megatron::test {

struct TinyPair {
  std::vector<int> tokens, types, targets;  // targets are -1 where nothing is masked
  std::vector<float> weights;
  int length = 0, label = 0;

  TinyPair(int step, std::int64_t sample, std::int64_t sequence, std::int64_t vocab) {
    const auto words = [&](std::int64_t row) {
      return philox4x32<7>(
          {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(row), 1},
          99);
    };
    const auto below = [](std::uint32_t word, std::int64_t bound) {
      return static_cast<int>(word % static_cast<std::uint32_t>(bound));
    };
    const auto whole = words(sequence);
    const auto s = static_cast<int>(sequence);
    length = s - below(whole[0], s / 2);
    const int second = 1 + below(whole[1], length - 1);
    label = below(whole[2], 3) - 1;
    for (int row = 0; row < s; ++row) {
      const auto random = words(row);
      const bool masked = row < length && random[1] % 4 == 0;
      tokens.push_back(below(random[0], vocab));
      types.push_back(row >= second && row < length ? 1 : 0);
      targets.push_back(masked ? below(random[2], vocab) : -1);
      weights.push_back(masked ? 1.0f : 0.0f);
    }
  }
};

/// -1: none.
inline int tiny_label(int step, std::int64_t sample, std::int64_t classes) {
  const auto words = philox4x32<7>({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(sample), 0, 2}, 99);
  return static_cast<int>(words[0] % static_cast<std::uint32_t>(classes + 1)) - 1;
}

}  // namespace megatron::test
