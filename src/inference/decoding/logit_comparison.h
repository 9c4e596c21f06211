// Whether two sources hold the same model: what it answers with the numbers of either to the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"

namespace megatron {

/// Compares the logits of both sides of a conversion for the same tokens.
struct LogitComparison {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> encoder_tokens;  ///< for an encoder-decoder, whose decoder reads `tokens`
  std::vector<float> logits;                 ///< the target's, [tokens, vocab_size]
  double largest_difference = 0, largest_logit = 0;
  std::int64_t differing = 0;    ///< logits of other bits, unless neither is a number
  std::int64_t not_numbers = 0;  ///< logits of the source
};

/// Sets the values of all these pieces, which are whole records in host memory.
using FillValues = std::function<void(const std::vector<TensorSlice>& values)>;

/// Runs the model of `config` on one process, with one side's numbers and then the other's: the memory of one model. It
/// reads ids below `known_tokens`, which both sides were trained with.
LogitComparison compare_logits(const Config& config, Communicator& world, std::int64_t known_tokens,
                               const FillValues& source, const FillValues& target);

}  // namespace megatron
