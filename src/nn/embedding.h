// Token and position embedding: the word table is cut by rows over the tensor ranks (vocabulary parallel), the position
// table, where a model learns one, is whole on each. Everything outside the tensor region from here on.
#pragma once

#include "nn/linear.h"

namespace megatron {

struct EmbeddingSizes {
  std::int64_t padded_vocab = 0, hidden = 0;
  std::int64_t positions = 0;  ///< rows of the position table; 0: there is none
  double dropout = 0, deviation = 0.02;
};

class Embedding {
 public:
  /// Uses `word` (declared by the model: it may be tied to the head) and declares embedding.position.weight, if any.
  Embedding(Declare& declare, int word, const EmbeddingSizes& sizes);

  /// y[s(/t), b, h] = dropout(word[tokens] (+ position[position_ids])); sets y.
  void forward(Context& context, Tensor y) const;
  /// Adds the tables' gradients, which are never put off: on one stage that would be another order than the head's. dy
  /// is used up (overwritten).
  void backward(Context& context, Tensor dy) const;

 private:
  ConstTensor outside_position_ids(const Context& context) const;

  const ParameterStore* store_;
  int word_, position_;  // kNone: no such table
  EmbeddingSizes sizes_;
};

}  // namespace megatron
