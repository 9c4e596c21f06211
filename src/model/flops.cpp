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

/// Per token and layer, forward: scores and their product with the values, over what the mask leaves of the square.
double attention_core(const ModelConfig& model, std::int64_t sequence, bool causal) {
  return 4 * static_cast<double>(model.attention_heads * model.head_size()) * static_cast<double>(sequence) *
         visible_share(sequence, causal, model.attention_window);
}

/// `multiplying`: of the model, its parameters that multiply; `repeated`: those of a layer that recomputation repeats.
FlopsPerToken flops_of(const ModelConfig& model, double multiplying, double core, std::int64_t recomputed_layers,
                       std::int64_t repeated) {
  FlopsPerToken flops;
  flops.model = 6 * multiplying + 3 * static_cast<double>(model.layers) * core;
  flops.hardware = flops.model + static_cast<double>(recomputed_layers) * (2 * static_cast<double>(repeated) + core);
  return flops;
}

}  // namespace

std::int64_t multiplying_parameters(const ModelConfig& model) {
  internal_check(model.attention_heads > 0 && model.query_groups > 0 && model.ffn_hidden_size > 0,
                 "FLOPs are counted for a resolved model only");
  return model.layers * multiplying_parameters_of_a_layer(model) + model.hidden_size * model.padded_vocab();
}

FlopsPerToken decoder_flops_per_token(const ModelConfig& model, std::int64_t recomputed_layers, std::int64_t sequence) {
  if (sequence == 0) sequence = model.sequence_length;
  return flops_of(model, static_cast<double>(multiplying_parameters(model)), attention_core(model, sequence, true),
                  recomputed_layers,
                  multiplying_parameters_of_a_layer(model) - model.hidden_size * model.ffn_hidden_size);
}

FlopsPerToken encoder_flops_per_token(const ModelConfig& model, std::int64_t recomputed_layers, std::int64_t sequence) {
  if (sequence == 0) sequence = model.sequence_length;
  const auto h = static_cast<double>(model.hidden_size);
  const double heads = h * h + (h * h + 2 * h) / static_cast<double>(sequence);
  // The norm after a post-norm layer's last projection reads it: it is repeated too.
  const std::int64_t last = model.norm_position == "post" ? 0 : model.hidden_size * model.ffn_hidden_size;
  return flops_of(model, static_cast<double>(multiplying_parameters(model)) + heads,
                  attention_core(model, sequence, false), recomputed_layers,
                  multiplying_parameters_of_a_layer(model) - last);
}

}  // namespace megatron
