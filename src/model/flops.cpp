#include "model/flops.h"

#include "base/error.h"
#include "ops/counting_ops.h"

namespace megatron {

namespace {

std::int64_t multiplying_parameters_of_a_layer(const ModelConfig& model) {
  const std::int64_t h = model.hidden_size;
  const std::int64_t query = model.attention_heads * model.head_size();
  const std::int64_t key_value = 2 * model.query_groups * model.head_size();
  return h * (query + key_value) + query * h + (model.gated() ? 3 : 2) * h * model.ffn_hidden_size;
}

}  // namespace

std::int64_t multiplying_parameters(const ModelConfig& model) {
  internal_check(model.attention_heads > 0 && model.query_groups > 0 && model.ffn_hidden_size > 0,
                 "FLOPs are counted for a resolved model only");
  return model.layers * multiplying_parameters_of_a_layer(model) + model.hidden_size * model.padded_vocab();
}

FlopsPerToken decoder_flops_per_token(const ModelConfig& model, std::int64_t recomputed_layers, std::int64_t sequence) {
  if (sequence == 0) sequence = model.sequence_length;
  const auto attention_width = static_cast<double>(model.attention_heads * model.head_size());
  // Scores and their product with the values, forward, over what the mask leaves of the square.
  const double attention_core =
      4 * attention_width * static_cast<double>(sequence) * visible_share(sequence, true, model.attention_window);
  FlopsPerToken flops;
  flops.model =
      6 * static_cast<double>(multiplying_parameters(model)) + 3 * static_cast<double>(model.layers) * attention_core;
  const std::int64_t repeated = multiplying_parameters_of_a_layer(model) - model.hidden_size * model.ffn_hidden_size;
  flops.hardware =
      flops.model + static_cast<double>(recomputed_layers) * (2 * static_cast<double>(repeated) + attention_core);
  return flops;
}

}  // namespace megatron
