// Losses: what is minimised, as the weight that each target's cross entropy has in its sum.
//
// A loss is a function of one sample's token ids alone. What is trained is
//     sum over all targets of weight · cross entropy  /  sum over all samples of the returned count,
// both sums over the whole global batch, so that micro-batches, data ranks and uneven masks change nothing.
#pragma once

#include "config/config.h"
#include "data/batches.h"

namespace megatron {

/// What training's micro-batches have beside tokens and targets. Without an end of document it says what there is, to
/// those who need the sizes.
BatchContents training_contents(const Config& config, std::int32_t end_of_document = -1);
/// The same of evaluations, whose loss is the plain language model's: what a perplexity is made of.
BatchContents evaluation_contents(const Config& config, std::int32_t end_of_document);

}  // namespace megatron
