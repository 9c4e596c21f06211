// Samples for an encoder-decoder, as fixed pseudo-random functions of (step, sample): texts of different lengths, and
// what the decoder is to write, of another.
#pragma once

#include <vector>

#include "base/core/philox.h"

namespace megatron::test {

struct TinyTranslation {
  std::vector<int> encoder_tokens, tokens, targets;
  std::vector<float> weights;  // 0 behind the end of the decoder's text
  int encoder_length = 0;

  TinyTranslation(int step, std::int64_t sample, std::int64_t encoder_rows, std::int64_t rows, std::int64_t vocab) {
    const auto words = [&](std::int64_t row) {
      return philox4x32<7>(
          {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(row), 2},
          99);
    };
    const auto below = [](std::uint32_t word, std::int64_t bound) {
      return static_cast<int>(word % static_cast<std::uint32_t>(bound));
    };
    const auto lengths = words(encoder_rows + rows);
    encoder_length = static_cast<int>(encoder_rows) - below(lengths[0], encoder_rows / 2);
    const int length = static_cast<int>(rows) - below(lengths[1], rows / 2);
    for (std::int64_t row = 0; row < encoder_rows; ++row) encoder_tokens.push_back(below(words(row)[0], vocab));
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto random = words(encoder_rows + row);
      tokens.push_back(below(random[2], vocab));
      targets.push_back(below(random[3], vocab));
      weights.push_back(row < length ? 1.0f : 0.0f);
    }
  }
};

}  // namespace megatron::test
