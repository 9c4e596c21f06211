// Router of a mixture of experts: chooses for each token its experts and their weights, and places in these experts.
//
// All decisions are made within a sample: an expert takes at most `capacity` tokens of each, so that neither the
// micro-batch size nor the layout changes what is chosen. Every tensor rank decides on all rows, from the same numbers;
// context ranks choose for their rows, tell each other, and place all: S is a whole sequence, s this context rank's.
// Tokens that find no place add nothing. Terms of the loss: balance (Fedus et al. 2021) and z (Zoph et al. 2022).
#pragma once

#include <string>

#include "models/layers/context.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

struct RouterSizes {
  std::int64_t hidden = 0, experts = 0, top_k = 0;
  bool renormalize = true;   ///< the weights of a token's experts are divided by their sum
  bool random_drop = false;  ///< in training, random tokens find no place; else the last ones of the sample
  bool choice_bias = false;  ///< a number per expert is added to its probability for the choice alone
  std::int64_t row = 0;      ///< the layer's among the model's layers with experts
  int balance_term = kNone, z_term = kNone;  ///< terms of the model's loss
  double deviation = 0.02;
  double jitter = 0;  ///< in training, what it reads is multiplied by factors in (1 - jitter, 1 + jitter)
};

class Router {
 public:
  struct Saved {
    Tensor probabilities;  ///< f32 [s, b, E]
    Tensor gates;          ///< f32 [s, b, k]: weights of the chosen experts
    Tensor log_sums;       ///< f32 [s·b]
    Tensor chosen;         ///< i32 [s, b, k]: experts
    Tensor whole_gates;    ///< f32 [S, b, k]: `gates` unless context ranks divide the sequence; absent without places
    Tensor slots;          ///< i32 [S, b, k]: the slots in the experts; -1: none
    Tensor entries;        ///< i32 [slots]: row · k + choice of what lies in a slot; -1: nothing
    Tensor counts;         ///< i32 [b, E]: tokens of whole samples that chose an expert
  };

  /// Declares NAME.weight [E, h] and perhaps NAME.choice_bias [E]; `layer` is the global index.
  Router(ParameterBuilder& builder, const std::string& name, const RouterSizes& sizes, std::int64_t layer);

  const RouterSizes& sizes() const { return sizes_; }

  /// In context.saved, for the rows of the stream at work. Of a layout without places no slots and entries: the caller
  /// places the tokens.
  Saved make_saved(Context& context, const ExpertSlots& layout) const;
  /// x [s, b, h], all rows of the context rank. Collective over the context ranks. Sets what `saved` views, and adds
  /// the sums of its terms to the loss and its choices to PassSettings::routes.
  void forward(Context& context, ConstTensor x, const ExpertSlots& layout, const Saved& saved) const;
  /// Adds to dx [s(/t), b, h] the gradient through the choice's weights, dgates f32 [s, b, k], and through the terms of
  /// the loss. x [s(/t), b, h]: this rank's rows of forward's.
  void backward(Context& context, ConstTensor dgates, ConstTensor x, const Saved& saved, Tensor dx) const;

 private:
  const ParameterStore* store_;
  RouterSizes sizes_;
  int weight_, choice_bias_;  // in the store; the second perhaps kNone
  std::int64_t layer_;
};

}  // namespace megatron
