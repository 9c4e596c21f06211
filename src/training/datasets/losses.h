// Losses: what is minimised, as the weight that each target's cross entropy has. This is where a new loss
// goes: docs/losses.md says how, with key_tokens as the example.
//
// A loss is a function of one sample's token ids and of its parameters in [loss]. What is trained is
//     (sum over all targets of weight · cross entropy) / (sum over all samples of the count that the function returns)
// over the whole global batch: whatever the function, micro-batches, data ranks and layout change nothing.
#pragma once

#include <span>
#include <string_view>

#include "config/schema/config.h"
#include "data/samples/next_token_samples.h"

namespace megatron {

struct Loss {
  std::string_view name;  ///< loss.name
  /// `tokens` are the s + 1 of a sample: the first s are its inputs, the last s its targets. weights [s], of the
  /// targets, come as 1, or 0 where a loss is masked (data.eod_mask_loss), and leave as what they are to be. Returns
  /// what the sample adds to the count. Called from a separate thread, for every sample on every rank that reads it:
  /// must depend on nothing but its arguments.
  double (*weigh)(const LossConfig& settings, std::span<const std::int32_t> tokens, std::span<float> weights);
};

std::span<const Loss> losses();

/// How much each of training's targets counts; null: once.
LossWeights training_weights(const Config& config, std::int32_t end_of_document);
/// The same of evaluations, whose loss is the plain language model's: what a perplexity is made of.
LossWeights evaluation_weights(const Config& config, std::int32_t end_of_document);

}  // namespace megatron
