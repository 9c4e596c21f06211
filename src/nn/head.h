// The language-model head: final norm, logits against the word table or a separate matrix, with a bias where there is
// one, vocabulary-parallel cross entropy.
// Logits stay cut over the tensor ranks; a row needs three sums of one number each (Shoeybi et al. 2019, section 3).
#pragma once

#include "nn/linear.h"
#include "nn/norm.h"

namespace megatron {

struct HeadSizes {
  std::int64_t vocab = 0;  ///< real vocabulary: columns beyond it are padding and do not exist
  NormSizes norm;
  bool bias = false;  ///< of the logits
  int loss_term = 0;  ///< the term of the model's loss that this head computes
};

class Head {
 public:
  struct Saved {
    Norm::Saved norm;
    ConstTensor normed;       ///< [s(/t), b, h]
    Tensor logits;            ///< [s·b, V/t]; becomes its own gradient in backward
    Tensor maximum, sum_exp;  ///< f32 [s·b], over the whole vocabulary
  };

  /// Uses `word`, the output matrix (declared by the model), and declares the final norm, final_norm, and head.bias, if
  /// there is one.
  Head(ParameterBuilder& builder, int word, const HeadSizes& sizes);

  /// Adds the sum of this micro-batch's token losses, each times its weight if there are weights, to its term of
  /// context.loss_sums, the same on every tensor rank. Sets context.results, if there are any.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Gradient of context.gradient_scale(term) · that sum: sets dx, adds the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;
  /// Logits of this rank's columns for every row, without a loss: sets logits [s·b, V/t].
  void logits(Context& context, ConstTensor x, Tensor logits) const;

 private:
  /// logits = whole · wordᵀ + bias
  void project(Context& context, ConstTensor whole, Tensor logits) const;

  const ParameterStore* store_;
  int word_;
  HeadSizes sizes_;
  Norm norm_;
  int bias_;  // kNone
  int last_parameter_;
};

}  // namespace megatron
