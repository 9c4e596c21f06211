// BERT's heads: the final norm of a pre-norm model; a dense layer, activation and norm in front of logits over the
// vocabulary, of masked tokens; and which of two texts comes first (pooled_classifier.h).
//
// The dense layer is whole on every tensor rank and works on the rows outside the region: under sequence parallelism on
// a share of them.
#pragma once

#include <optional>

#include "models/layers/norm.h"
#include "models/layers/pooled_classifier.h"
#include "models/layers/vocabulary_loss.h"

namespace megatron {

struct BertHeadSizes {
  std::int64_t vocab = 0;  ///< real vocabulary
  NormSizes norm;
  bool final_norm = true;  ///< for the input of all heads
  Activation activation = Activation::gelu;
  double scale = 1;                                      ///< factor of what the logits of tokens are made of
  std::int64_t chunks = 1;                               ///< parts of these logits' rows
  double deviation = 0.02, output_deviation = 0.02;      ///< the initial weights', and those of the order's logits
  int language_model_term = 0, sentence_order_term = 1;  ///< terms of the model's loss
};

class BertHead {
 public:
  struct Saved {
    Norm::Saved final_norm;
    ConstTensor x;              ///< [s(/t), b, h]: what both heads read
    Tensor product, activated;  ///< [s(/t), b, h]: of the dense layer, before its bias and after the activation
    Norm::Saved norm;
    VocabularyLoss::Saved language_model;
    PooledClassifier::Saved sentence_order;
  };

  /// Uses `word`, the output matrix (declared by the model), and declares final_norm.…, head.dense.{weight,bias},
  /// head.norm.…, head.bias, pooler.… and order_head.….
  BertHead(ParameterBuilder& builder, int word, const BertHeadSizes& sizes);

  /// Adds this micro-batch's sums to both terms of PassSettings::loss_sums. x must live until backward.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Logits of this rank's columns for every row, without a loss: sets logits [s·b, V/t].
  void logits(Context& context, ConstTensor x, Tensor logits) const;
  /// Gradient of both, each by its context.gradient_scale(): sets dx, adds the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;

 private:
  /// Up to what the logits are made of, which it returns, in VocabularyLoss::input_arena().
  ConstTensor transform(Context& context, ConstTensor x, Saved& saved) const;
  /// Sets dx to the gradient through the dense layer.
  void backward_dense(Context& context, Saved& saved, Tensor dx) const;

  const ParameterStore* store_;
  BertHeadSizes sizes_;
  std::optional<Norm> final_norm_;
  int dense_weight_, dense_bias_;
  Norm norm_;
  VocabularyLoss language_model_;
  PooledClassifier sentence_order_;
  int last_parameter_;
};

}  // namespace megatron
