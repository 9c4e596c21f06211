#include "training/datasets/losses.h"

#include <algorithm>
#include <numeric>

namespace megatron {

namespace {

double sum(std::span<const float> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

// The mean over all targets.
double language_model(const LossConfig& /*settings*/, std::span<const std::int32_t> /*tokens*/,
                      std::span<float> weights) {
  return sum(weights);
}

// The mean over samples of their own means, of which each counts the more, the more of its tokens are among those
// given.
double key_tokens(const LossConfig& settings, std::span<const std::int32_t> tokens, std::span<float> weights) {
  const double targets = sum(weights);
  if (targets == 0) return 0;  // all are masked: the sample has no mean
  const auto is_key = [&](std::int32_t token) {
    return std::find(settings.token_ids.begin(), settings.token_ids.end(), token) != settings.token_ids.end();
  };
  const auto occurrences = static_cast<double>(std::count_if(tokens.begin(), tokens.end(), is_key));
  const auto weight = static_cast<float>((1 + settings.alpha * occurrences) / targets);
  for (float& each : weights) each *= weight;
  return 1;
}

constexpr Loss kLosses[] = {
    {"language_model", language_model},
    {"key_tokens", key_tokens},
};

static_assert(same_names(kLosses, kLossNames), "config/schema/config.h names other losses");

// Nothing where every target counts once.
LossWeights loss_weights(const LossConfig& settings, bool masked, std::int32_t end_of_document) {
  if (settings.name == LossConfig{}.name && !masked) return nullptr;
  return [=, weigh = row_named(kLosses, settings.name).weigh](std::span<const std::int32_t> tokens,
                                                              std::span<float> weights) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = masked && tokens[i] == end_of_document ? 0.0f : 1.0f;  // no text predicts what follows the end
    }
    return weigh(settings, tokens, weights);
  };
}

}  // namespace

std::span<const Loss> losses() {
  return kLosses;
}

LossWeights training_weights(const Config& config, std::int32_t end_of_document) {
  return loss_weights(config.loss, config.data.eod_mask_loss, end_of_document);
}

LossWeights evaluation_weights(const Config& config, std::int32_t end_of_document) {
  return loss_weights(LossConfig{}, config.data.eod_mask_loss, end_of_document);
}

}  // namespace megatron
