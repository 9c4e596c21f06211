// A class of each sample from its first row: a pooler (tanh of a linear layer), dropout and a linear layer; cross
// entropy over the samples with a label. BERT's order of sentences is one, and so are heads of tasks (task_head.h).
//
// Where several columns make a sample, each has one output, and the classes are the columns: a multiple choice. Under
// sequence parallelism tensor rank 0 alone has the first row: it is summed over the ranks, to which the others add
// zeros, and all compute the rest, to the same bits; rank 0 alone passes the gradient on.
#pragma once

#include <string>

#include "models/layers/as_matrix.h"
#include "models/layers/context.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

struct PooledClassifierSizes {
  std::string name = "order_head";  ///< name of the linear layer's parameters
  std::int64_t hidden = 0;
  std::int64_t outputs = 2;                          ///< the linear layer's, for each column
  std::int64_t columns = 1;                          ///< columns of a sample; more than one: `outputs` is 1
  double dropout = 0;                                ///< for the input of the linear layer
  double deviation = 0.02, output_deviation = 0.02;  ///< the initial weights': of the pooler, and of the classes
  int loss_term = 0;                                 ///< the term of the model's loss that this computes

  std::int64_t classes() const { return outputs * columns; }
};

class PooledClassifier {
 public:
  struct Saved {
    ConstTensor first;                 ///< [b, h]: the first row of every column
    Tensor pooled_product, pooled;     ///< [b, h]: before bias and tanh; after them and dropout
    Tensor logits;                     ///< [b, outputs]; becomes its own gradient in backward
    Tensor weights, maximum, sum_exp;  ///< f32 [b / columns]; weights are 1 for samples with a label, else 0
  };

  /// Declares pooler.{weight,bias} and NAME.{weight,bias}. A multiple choice has no NAME.bias, which would shift all
  /// choices alike.
  PooledClassifier(ParameterBuilder& builder, PooledClassifierSizes sizes);

  /// Adds the sum of this micro-batch's losses to its term of PassSettings::loss_sums, the same on every tensor rank,
  /// and sets context.results' scores. x [s(/t), b, h] must live until backward.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Gradient of context.gradient_scale(term) · that sum: adds to dx and the parameters' gradients.
  void backward(Context& context, Saved& saved, Tensor dx) const;

 private:
  ConstTensor first_rows(Context& context, ConstTensor x) const;
  void pool(Context& context, Saved& saved) const;
  void compute_loss(Context& context, Saved& saved) const;
  /// Logits, or their gradient, with a row for each label: [b / columns, classes].
  Tensor rows_of_labels(const Saved& saved) const;
  /// Hands dy and x to context.weight_gradients and adds the bias' gradient; sets dx.
  void backward_linear(Context& context, ConstTensor dy, ConstTensor x, int weight, int bias, Tensor dx) const;

  const ParameterStore* store_;
  PooledClassifierSizes sizes_;
  int pooler_weight_, pooler_bias_, weight_, bias_;
  int counted_;  // constant: 1 for each class
};

}  // namespace megatron
