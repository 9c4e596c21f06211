#include "models/families/flops.h"

#include "backend/ops/counting_ops.h"
#include "base/core/error.h"

namespace megatron {

namespace {

std::int64_t attention_parameters(const ModelConfig& model) {
  const std::int64_t h = model.hidden_size;
  const std::int64_t query = model.attention_heads * model.head_size();
  const std::int64_t key_value = 2 * model.query_groups * model.head_size();
  return h * (query + key_value) + query * h;
}

/// Parameters of a feed-forward part of this inner width.
std::int64_t feed_forward_parameters(const ModelConfig& model, std::int64_t ffn) {
  return (model.gated() ? 3 : 2) * model.hidden_size * ffn;
}

/// Parameters of the dense part of a layer with experts, and of what mixes it with them.
std::int64_t dense_part_parameters(const ModelConfig& model) {
  const MoeConfig& moe = model.moe;
  if (moe.residual) return feed_forward_parameters(model, model.ffn_hidden_size) + 2 * model.hidden_size;
  return feed_forward_parameters(model, moe.shared_ffn()) + (moe.shared_gate ? model.hidden_size : 0);
}

/// Parameters of a stack of layers that multiply a token: of the experts, those that it goes through, dropped or not.
std::int64_t stack_parameters(const ModelConfig& model, std::int64_t layers) {
  const MoeConfig& moe = model.moe;
  const std::int64_t with_experts = moe.layers_among(layers);
  const std::int64_t experts = moe.experts * model.hidden_size +
                               moe.top_k * feed_forward_parameters(model, moe.ffn_hidden_size) +
                               dense_part_parameters(model);
  return layers * attention_parameters(model) +
         (layers - with_experts) * feed_forward_parameters(model, model.ffn_hidden_size) + with_experts * experts;
}

/// Parameters of a stack's layer, as if all were alike.
double layer_parameters(const ModelConfig& model, std::int64_t layers) {
  return static_cast<double>(stack_parameters(model, layers)) / static_cast<double>(layers);
}

/// Parameters of a layer's last projection, which recomputation does not repeat. It does repeat the last projection of
/// experts, and that of a dense part next to them that is not just added.
double last_projection(const ModelConfig& model, std::int64_t layers) {
  const MoeConfig& moe = model.moe;
  const std::int64_t with_experts = moe.layers_among(layers), shared = moe.shared_gate ? 0 : moe.shared_ffn();
  const auto width = static_cast<double>((layers - with_experts) * model.ffn_hidden_size + with_experts * shared);
  return width / static_cast<double>(layers) * static_cast<double>(model.hidden_size);
}

/// Parameters of the first matrices of a layer's feed-forward parts: of the experts, those that a token goes through.
double first_products(const ModelConfig& model, std::int64_t layers) {
  const MoeConfig& moe = model.moe;
  const std::int64_t with_experts = moe.layers_among(layers);
  const std::int64_t of_experts =
      moe.top_k * moe.ffn_hidden_size + (moe.residual ? model.ffn_hidden_size : moe.shared_ffn());
  const auto width = static_cast<double>((layers - with_experts) * model.ffn_hidden_size + with_experts * of_experts);
  return (model.gated() ? 2 : 1) * width / static_cast<double>(layers) * static_cast<double>(model.hidden_size);
}

/// Per token and layer, forward: scores and their product with the values, over what the mask leaves of the square.
double attention_core(const ModelConfig& model, std::int64_t sequence, bool causal) {
  return 4 * static_cast<double>(model.attention_heads * model.head_size()) * static_cast<double>(sequence) *
         visible_share(sequence, causal, model.attention_window);
}

/// `multiplying`: of the model, its parameters that multiply; `repeated`: those of a layer that recomputation repeats.
FlopsPerToken flops_of(const ModelConfig& model, double multiplying, double core, RecomputedLayers recomputed,
                       double repeated) {
  FlopsPerToken flops;
  flops.model = 6 * multiplying + 3 * static_cast<double>(model.layers) * core;
  const double again = recomputed.first_products_alone ? 2 * first_products(model, model.layers) : 2 * repeated + core;
  flops.hardware = flops.model + static_cast<double>(recomputed.layers) * again;
  return flops;
}

}  // namespace

std::int64_t multiplying_parameters(const ModelConfig& model) {
  internal_check(model.attention_heads > 0 && model.query_groups > 0 && model.ffn_hidden_size > 0,
                 "FLOPs are counted for a resolved model only", model.attention_heads, model.query_groups,
                 model.ffn_hidden_size);
  return stack_parameters(model, model.layers) + model.hidden_size * model.padded_vocab();
}

FlopsPerToken decoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence) {
  if (sequence == 0) sequence = model.sequence_length;
  return flops_of(model, static_cast<double>(multiplying_parameters(model)), attention_core(model, sequence, true),
                  recomputed, layer_parameters(model, model.layers) - last_projection(model, model.layers));
}

FlopsPerToken encoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence) {
  if (sequence == 0) sequence = model.sequence_length;
  const auto h = static_cast<double>(model.hidden_size);
  const auto classes = static_cast<double>(model.task_outputs > 0 ? model.task_outputs : 2);
  // Pretraining has a dense layer in front of the vocabulary; a task has no vocabulary. The pooler reads one row.
  double heads = model.task_outputs > 0 ? -h * static_cast<double>(model.padded_vocab()) : h * h;
  heads += (h * h + classes * h) / static_cast<double>(sequence);
  // The norm after a post-norm layer's last projection reads it: it is repeated too.
  const double last = model.norms() == NormPosition::post ? 0 : last_projection(model, model.layers);
  FlopsPerToken flops =
      flops_of(model, static_cast<double>(multiplying_parameters(model)) + heads,
               attention_core(model, sequence, false), recomputed, layer_parameters(model, model.layers) - last);
  flops.model *= static_cast<double>(model.task_choices);  // a question's tokens are counted once
  flops.hardware *= static_cast<double>(model.task_choices);
  return flops;
}

FlopsPerToken encoder_decoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed,
                                              std::int64_t /*sequence*/) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto encoder_rows = static_cast<double>(model.sequence_length);
  const auto decoder_rows = static_cast<double>(model.decoder_sequence_length);
  const double layer = layer_parameters(model, model.layers);
  const double of_decoder = layer_parameters(model, model.decoder_layers);
  const auto query = static_cast<double>(model.attention_heads * model.head_size());
  const auto keys = static_cast<double>(2 * model.query_groups * model.head_size());
  const double last = last_projection(model, model.layers);
  const double last_of_decoder = last_projection(model, model.decoder_layers);
  // Forward, of one sample.
  const double encoder_core = encoder_rows * attention_core(model, model.sequence_length, false);
  const double decoder_core =
      decoder_rows * (attention_core(model, model.decoder_sequence_length, true) + 4 * query * encoder_rows);
  const double encoder_layer = 2 * encoder_rows * layer + encoder_core;
  const double decoder_layer =
      2 * decoder_rows * (of_decoder + 2 * h * query) + 2 * encoder_rows * h * keys + decoder_core;
  const double head = 2 * decoder_rows * h * static_cast<double>(model.padded_vocab());

  FlopsPerToken flops;
  flops.model = 3 * (static_cast<double>(model.layers) * encoder_layer +
                     static_cast<double>(model.decoder_layers) * decoder_layer + head);
  const bool alone = recomputed.first_products_alone;
  const double again =
      alone ? 2 * encoder_rows * first_products(model, model.layers) : encoder_layer - 2 * encoder_rows * last;
  const double again_of_decoder = alone ? 2 * decoder_rows * first_products(model, model.decoder_layers)
                                        : decoder_layer - 2 * decoder_rows * last_of_decoder;
  flops.hardware = flops.model + static_cast<double>(recomputed.layers) * again +
                   static_cast<double>(recomputed.decoder_layers) * again_of_decoder;
  flops.model /= encoder_rows;
  flops.hardware /= encoder_rows;
  return flops;
}

}  // namespace megatron
