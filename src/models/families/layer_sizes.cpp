#include "models/families/layer_sizes.h"

#include <cmath>

#include "models/families/moe_terms.h"
#include "models/families/rotary.h"

namespace megatron {

NormSizes norm_sizes(const ModelConfig& model) {
  return {.hidden = model.hidden_size,
          .kind = row_named(kNormalizations, model.normalization).kind,
          .epsilon = model.norm_epsilon};
}

double hidden_deviation(const ModelConfig& model) {
  return model.init_std / std::sqrt(model.width_factor());
}

double output_deviation(const ModelConfig& model) {
  return model.init_std / model.width_factor();
}

double head_scale(const ModelConfig& model) {
  const double scale = model.scale_head ? 1 / std::sqrt(static_cast<double>(model.base_width())) : 1;
  return scale / model.width_factor();
}

namespace {

Residual residual_of(const ModelConfig& model) {
  return model.residuals() == ResidualOrder::parallel            ? Residual::parallel
         : model.residuals() == ResidualOrder::parallel_one_norm ? Residual::parallel_one_norm
         : model.norms() == NormPosition::post                   ? Residual::post_norm
                                                                 : Residual::sequential;
}

MoeSizes moe_sizes(const ModelConfig& model, const MlpSizes& mlp, const ProcessGrid& grid, int own_terms) {
  const MoeConfig& moe = model.moe;
  const MoeTerms terms = moe_terms(model, own_terms);
  MoeSizes sizes{.router = {.hidden = model.hidden_size,
                            .experts = moe.experts,
                            .top_k = moe.top_k,
                            .renormalize = moe.renormalize,
                            .random_drop = moe.drops() == ExpertDrop::random,
                            .choice_bias = moe.bias_rate > 0,
                            .balance_term = terms.balance,
                            .z_term = terms.z,
                            .deviation = output_deviation(model),
                            .jitter = moe.jitter},
                 .expert = mlp,
                 .capacity_factor = moe.capacity_factor,
                 .evaluation_capacity_factor = moe.evaluation_capacity_factor,
                 .minimum_capacity = moe.minimum_capacity,
                 .buffer = moe.drops() == ExpertDrop::none ? moe.buffer : 0,
                 .expert_ranks = &grid.expert()};
  sizes.expert.ffn = moe.ffn_hidden_size;
  return sizes;
}

DensePartSizes dense_part_sizes(const MoeConfig& moe, const MlpSizes& mlp) {
  using Mix = DensePartSizes::Mix;
  if (moe.residual) return {.mix = Mix::softmax, .mlp = mlp};
  if (moe.shared_experts == 0) return {};
  DensePartSizes sizes{.mix = moe.shared_gate ? Mix::sigmoid : Mix::sum, .mlp = mlp};
  sizes.mlp.ffn = moe.shared_ffn();
  return sizes;
}

// Scores of large heads are sums of terms that learn to agree: a larger head divides by its size, and not by the root
// of it, as far as it is larger than those of the base.
double score_factor(const ModelConfig& model) {
  const double factor = model.head_size_factor();
  return 1 / (model.scale_of_scores() == AttentionScale::head_size ? std::sqrt(factor) : factor);
}

}  // namespace

BlockSizes block_sizes(const ModelConfig& model, const ProcessGrid& grid, Sight sight, int own_terms) {
  // Outputs that add to the residual stream start smaller, by the number of them (Radford et al. 2019).
  const double deviation = hidden_deviation(model);
  const double residual_deviation = deviation / std::sqrt(2.0 * static_cast<double>(model.layers));
  BlockSizes sizes;
  sizes.attention = {.hidden = model.hidden_size,
                     .heads = model.attention_heads,
                     .groups = model.query_groups,
                     .head_size = model.head_size(),
                     .bias = model.bias.query_key_value,
                     .output_bias = model.bias.attention_output,
                     .causal = sight == Sight::earlier,
                     .window = model.attention_window,
                     .alibi = model.positions() == PositionEmbedding::alibi,
                     .inverse_frequencies = model.positions() == PositionEmbedding::rotary
                                                ? rotary_inverse_frequencies(model)
                                                : std::vector<float>(),
                     .query_key_norm = model.query_key_norm,
                     .norm_epsilon = model.norm_epsilon,
                     .dropout = model.attention_dropout,
                     .deviation = deviation,
                     .output_deviation = residual_deviation};
  sizes.attention.scaled = model.scale_of_scores() == AttentionScale::head_size;
  sizes.attention.scale_factor = score_factor(model);
  sizes.attention.softcap = model.attention_softcap;
  sizes.mlp = {.hidden = model.hidden_size,
               .ffn = model.ffn_hidden_size,
               .bias = model.bias.feed_forward,
               .activation = row_named(kActivations, model.activation).activation,
               .deviation = deviation,
               .output_deviation = residual_deviation};
  if (model.moe.experts > 0) {
    sizes.moe = ExpertLayerSizes(moe_sizes(model, sizes.mlp, grid, own_terms), dense_part_sizes(model.moe, sizes.mlp));
  }
  sizes.norm = norm_sizes(model);
  sizes.residual = residual_of(model);
  sizes.hidden_dropout = model.hidden_dropout;
  return sizes;
}

EmbeddingSizes embedding_sizes(const ModelConfig& model) {
  EmbeddingSizes sizes{.padded_vocab = model.padded_vocab(),
                       .hidden = model.hidden_size,
                       .positions = model.positions() == PositionEmbedding::learned ? model.max_position_embeddings : 0,
                       .dropout = model.hidden_dropout,
                       .deviation = model.init_std};
  if (model.scale_embeddings) sizes.scale = std::sqrt(static_cast<double>(model.base_width()));
  if (model.embedding_norm) sizes.norm = norm_sizes(model);
  return sizes;
}

}  // namespace megatron
