// Logits against the word table or a separate matrix, with a bias where there is one, and their vocabulary-parallel
// cross entropy: what heads of tokens have in common. Knows no norm in front of it.
// Logits stay cut over the tensor ranks; a row needs three sums of one number each (Shoeybi et al. 2019, section 3).
#pragma once

#include "models/layers/linear.h"

namespace megatron {

class VocabularyLoss {
 public:
  struct Saved {
    ConstTensor x;            ///< [s(/t), b, h], kept by the caller until backward
    Tensor logits;            ///< [s·b, V/t]; becomes its own gradient in backward
    Tensor maximum, sum_exp;  ///< f32 [s·b], over the whole vocabulary
  };

  /// Uses `word`, the output matrix, of which `vocab` rows are real and the rest is padding that does not exist, and
  /// `bias` (kNone: none); `loss_term` is the term of the model's loss that this computes.
  VocabularyLoss(const ParameterStore& store, int word, int bias, std::int64_t vocab, int loss_term)
      : store_(&store), word_(word), bias_(bias), vocab_(vocab), loss_term_(loss_term) {}

  /// Adds the sum of this micro-batch's token losses, each times its weight if there are weights, to its term of
  /// PassSettings::loss_sums, the same on every tensor rank. Sets context.results, if there are any.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Gradient of context.gradient_scale(term) · that sum: sets dx, adds the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;
  /// Logits of this rank's columns for every row, without a loss: sets logits [s·b, V/t].
  void logits(Context& context, ConstTensor x, Tensor logits) const;

 private:
  const ParameterStore* store_;
  int word_, bias_;
  std::int64_t vocab_;
  int loss_term_;
};

}  // namespace megatron
