// The feed-forward part of a block with experts: the experts that a router chooses (moe.h), alone or together with a
// dense part that all tokens go through. That is shared experts, whose output is added (Dai et al. 2024), at will times
// the sigmoid of a linear layer (Qwen2-MoE); or one more feed-forward part, which the softmax of a linear layer mixes
// with the experts (residual mixture, Rajbhandari et al. 2022). The dense part is a dense layer's: every data rank has
// it, and tensor ranks cut it.
#pragma once

#include <optional>
#include <string>

#include "models/experts/moe.h"
#include "models/layers/mlp.h"

namespace megatron {

struct DensePartSizes {
  enum class Mix {
    none,     ///< there is no dense part
    sum,      ///< shared experts: experts + dense
    sigmoid,  ///< with a gate: experts + sigmoid(w · x) dense
    softmax   ///< residual: c0 experts + c1 dense, (c0, c1) = softmax(W x + b), in DeepSpeed's order
  };
  Mix mix = Mix::none;
  MlpSizes mlp = {};
};

struct ExpertLayerSizes {
  MoeSizes experts;
  DensePartSizes dense;

  ExpertLayerSizes(const MoeSizes& experts_, const DensePartSizes& dense_ = {}) : experts(experts_), dense(dense_) {}
};

class ExpertLayer {
 public:
  struct Saved {
    Moe::Saved experts;
    Mlp::Saved dense;
    // Where the parts are mixed by weights, all outside of the tensor region:
    Tensor logits;                       ///< f32 [s(/t), b, 1 or 2]
    Tensor expert_output, dense_output;  ///< [s(/t), b, h], of the softmax both, of the sigmoid the latter
  };

  /// Declares what Moe does, and NAME.shared.…, with a gate NAME.shared_gate.weight [1, h]; or NAME.dense.… and
  /// NAME.mix.{weight [2, h], bias}. `layer` is the global index.
  ExpertLayer(ParameterBuilder& builder, const std::string& name, const ExpertLayerSizes& sizes, std::int64_t layer);

  void activate(Context& context, ConstTensor x, Saved& saved) const;  ///< everything that backward reads
  /// Sets y [s(/t), b, h], with all biases.
  void project(Context& context, const Saved& saved, Tensor y) const;
  /// Sets dx, which is not dy. dy must live until the weight gradients have run, which may overwrite what is saved.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  using Mix = DensePartSizes::Mix;
  bool weighted() const { return weight_ != kNone; }
  ConstTensor weight_bias() const { return bias_ == kNone ? ConstTensor() : ConstTensor(store_->at(bias_).value); }
  /// Sets y [s(/t), b, h], with the bias.
  void project_dense(Context& context, const Saved& saved, Tensor y) const;
  void dense_backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;         ///< adds to dx
  void weights_backward(Context& context, ConstTensor dlogits, const Saved& saved, Tensor dx) const;  ///< the same

  const ParameterStore* store_;
  Mix mix_;
  Moe experts_;
  std::optional<Mlp> dense_;
  int weight_ = kNone, bias_ = kNone;  // the logits'
};

}  // namespace megatron
