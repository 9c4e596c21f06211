// Floating-point operations that a token of training costs, for the rates that the run reports. Convention (say it
// wherever a rate is printed, since other programs' differ): a multiply-add is two operations; the backward costs twice
// the forward; a decoder's attention is counted causally, which is half of the s × s square, and of that what lies
// within model.attention_window, an encoder's whole. So a decoder's token costs 6 N + 6 L h s without a window, N being
// multiplying_parameters(). Softmax, norms, activations and the optimizer are not counted.
#pragma once

#include <cstdint>

#include "config/schema/config.h"

namespace megatron {

/// Layers that a backward computes again.
struct RecomputedLayers {
  std::int64_t layers = 0;            ///< among `model.layers`
  std::int64_t decoder_layers = 0;    ///< among `model.decoder_layers`
  bool first_products_alone = false;  ///< instead of the whole: feed-forward parts' first matrices

  RecomputedLayers(std::int64_t layers_ = 0, std::int64_t decoder_layers_ = 0)
      : layers(layers_), decoder_layers(decoder_layers_) {}
  std::int64_t all() const { return layers + decoder_layers; }
};

struct FlopsPerToken {
  double model = 0;     ///< needed by the mathematics: 6 N + 6 L h s
  double hardware = 0;  ///< model + the products that recomputation repeats
};

/// N of the convention above, the parameters of the whole model that multiply: the matrices of all layers and the
/// output head of the padded vocabulary (whether tied or not), without the word and position look-ups, biases and
/// norms. `model` must be resolved.
std::int64_t multiplying_parameters(const ModelConfig& model);

/// At `sequence` tokens per sample; 0: at the model's own length. A recomputed layer repeats its forward without the
/// last projection (ffn to hidden), whose result no backward reads; published counts repeat that as well. (What
/// attention's backward computes again in any case is a part of its kernel, and not counted.)
FlopsPerToken flops_per_token(const ModelConfig& model, RecomputedLayers recomputed = {}, std::int64_t sequence = 0);
/// The same of a family whose layers are a decoder's (models/families/family.h has the table).
FlopsPerToken decoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence);
/// For an encoder with BERT's heads: attention over the whole square, the padding of short samples included; N also has
/// the dense layer in front of the logits, and the share of a token in the pooler, which works once per sample.
FlopsPerToken encoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence);
/// For an encoder-decoder, for each of the encoder's tokens, which are the ones that a run counts: the decoder's and
/// the head's work of a sample is shared out over them. The encoder's attention and the cross-attention count whole,
/// keys and values of the latter once per layer and encoder token. At the model's own lengths, whatever `sequence`
/// says.
FlopsPerToken encoder_decoder_flops_per_token(const ModelConfig& model, RecomputedLayers recomputed,
                                              std::int64_t sequence);

}  // namespace megatron
