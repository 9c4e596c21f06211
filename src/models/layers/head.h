// A decoder's language-model head: final norm, logits and their cross entropy (vocabulary_loss.h).
#pragma once

#include "models/layers/norm.h"
#include "models/layers/vocabulary_loss.h"

namespace megatron {

struct HeadSizes {
  std::int64_t vocab = 0;  ///< real vocabulary: columns beyond it are padding and do not exist
  NormSizes norm;
  bool bias = false;        ///< for the logits
  double scale = 1;         ///< factor of what the logits are made of
  std::int64_t chunks = 1;  ///< parts of the logits' rows, one after the other
  int loss_term = 0;        ///< the term of the model's loss that this head computes
};

class Head {
 public:
  struct Saved {
    Norm::Saved norm;
    VocabularyLoss::Saved loss;
  };

  /// Uses `word`, the output matrix (declared by the model), and declares the final norm, final_norm, and head.bias, if
  /// there is one.
  Head(ParameterBuilder& builder, int word, const HeadSizes& sizes);

  /// VocabularyLoss' forward, backward and logits, of the scaled norm of x.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  void backward(Context& context, Saved& saved, Tensor dx) const;
  void logits(Context& context, ConstTensor x, Tensor logits) const;

 private:
  /// Sets `normed` to the scaled norm of x.
  void normalize(Context& context, ConstTensor x, Tensor normed, Norm::Saved& saved) const;

  const ParameterStore* store_;
  double scale_;
  Norm norm_;
  VocabularyLoss loss_;
  int last_parameter_;
};

}  // namespace megatron
