#include "train/losses.h"

#include <numeric>

namespace megatron {

namespace {

// The mean of the losses of all targets that count.
double language_model(std::span<const float> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// data.eod_mask_loss: what follows the end of a document cannot be told from it.
LossWeights masked_loss(std::int32_t end_of_document) {
  return [end_of_document](std::span<const std::int32_t> tokens, std::span<float> weights) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = tokens[i] == end_of_document ? 0.0f : 1.0f;
    return language_model(weights);
  };
}

}  // namespace

BatchContents training_contents(const Config& config, std::int32_t end_of_document) {
  return evaluation_contents(config, end_of_document);
}

BatchContents evaluation_contents(const Config& config, std::int32_t end_of_document) {
  BatchContents contents{.document_starts = config.data.reset_attention_mask,
                         .position_ids = config.data.reset_position_ids,
                         .end_of_document = end_of_document};
  if (config.data.eod_mask_loss) contents.weights = masked_loss(end_of_document);
  return contents;
}

}  // namespace megatron
