// The feed-forward half of a block inside the tensor region: up (column parallel), bias and activation, down (row
// parallel). A gate is a record next to up, and one product makes both. Bias and dropout of the output belong to the
// block.
#pragma once

#include <string>

#include "models/layers/linear.h"

namespace megatron {

/// Tensors between a feed-forward part's matrices that a forward keeps. Backward makes the others again, one layer at a
/// time; products that read them run at once.
enum class KeptInner {
  all,
  product,  ///< the first matrix' product, not the activation's output
  none      ///< backward repeats the product
};

struct MlpSizes {
  std::int64_t hidden = 0, ffn = 0;  ///< the whole model's
  bool bias = true;
  Activation activation = Activation::gelu;
  double deviation = 0.02, output_deviation = 0.02;  ///< the initial weights'
  KeptInner kept = KeptInner::all;
};

class Mlp {
 public:
  struct Saved {
    ConstTensor x;     ///< [s(/t), b, h]
    Tensor up;         ///< [s, b, f/t], the operations' own; gated [s, b, 2 f/t], gate and up side by side
    Tensor activated;  ///< [s, b, f/t]
    // Tensors that are not kept stay in scratch until project(): the caller of activate() gives it back.
  };

  /// Declares NAME.{up,down}.weight, gated NAME.gate.weight before up, and, with biases, .bias.
  Mlp(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes);

  const RowParallelLinear& down() const { return down_; }
  /// For the gradient that reaches the last product.
  Context at_output(const Context& context) const { return kept_ == KeptInner::all ? context : context.at_once(); }

  /// Sets y [s(/t), b, h], no bias: activate() and project().
  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  void activate(Context& context, ConstTensor x, Saved& saved) const;  ///< everything that backward reads
  void project(Context& context, const Saved& saved, Tensor y) const;  ///< the rest of forward
  /// Sets dx. Leaves `up` to context.weight_gradients, which may overwrite it.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  void make(Context& context, Saved& saved) const;
  /// Backward's: with what is not kept, in scratch.
  Saved complete(Context& context, const Saved& saved) const;

  Activation activation_;
  KeptInner kept_;
  ColumnParallelLinear up_;
  RowParallelLinear down_;
};

}  // namespace megatron
