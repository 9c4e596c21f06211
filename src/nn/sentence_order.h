// BERT's second task: from the first row of each sample, a pooler (tanh of a linear layer) and one of two classes,
// which of the sample's two texts comes first; cross entropy over the samples with a label.
//
// Under sequence parallelism tensor rank 0 alone has the first row: it is summed over the ranks, to which the others
// add zeros, and all compute the rest, to the same bits; rank 0 alone passes the gradient on.
#pragma once

#include "nn/as_matrix.h"
#include "nn/context.h"
#include "nn/parameter_builder.h"

namespace megatron {

struct SentenceOrderSizes {
  std::int64_t hidden = 0;
  double deviation = 0.02;  ///< of the initial weights
  int loss_term = 0;        ///< the term of the model's loss that this computes
};

class SentenceOrder {
 public:
  struct Saved {
    ConstTensor first;                 ///< [b, h]: the first row of every sample
    Tensor pooled_product, pooled;     ///< [b, h]: before bias and tanh, and after
    Tensor logits;                     ///< [b, 2]; becomes its own gradient in backward
    Tensor weights, maximum, sum_exp;  ///< f32 [b]; weights are 1 for samples with a label, else 0
  };

  /// Declares pooler.{weight,bias} and order_head.{weight,bias}.
  SentenceOrder(ParameterBuilder& builder, const SentenceOrderSizes& sizes);

  /// Adds the sum of this micro-batch's losses to its term of context.loss_sums, the same on every tensor rank. x
  /// [s(/t), b, h] must live until backward.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Gradient of context.gradient_scale(term) · that sum: adds to dx and the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;

 private:
  static constexpr std::int64_t kClasses = 2;

  ConstTensor first_rows(Context& context, ConstTensor x) const;
  /// Hands dy and x to context.weight_gradients and adds the bias' gradient; sets dx.
  void backward_linear(Context& context, ConstTensor dy, ConstTensor x, int weight, int bias, Tensor dx) const;

  const ParameterStore* store_;
  SentenceOrderSizes sizes_;
  int pooler_weight_, pooler_bias_, order_weight_, order_bias_;
  int counted_;  // constant: 1 for each class
};

}  // namespace megatron
