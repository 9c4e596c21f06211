// CountingOps: operations that compute nothing and count the floating-point operations of matmuls and attention. With
// sizing arenas and counting communicators it plays the program's own step for --dry-run; no tensor is touched.
#pragma once

#include "ops/ops.h"

namespace megatron {

class CountingOps final : public Ops {
 public:
  double matmul_flops() const { return matmul_flops_; }
  double attention_flops() const { return attention_flops_; }  ///< causal: half the square where the mask is

  void matmul(const MatmulArgs&) override;
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;

  void add_bias(const AddBiasArgs&) override {}
  void column_sum(const ColumnSumArgs&) override {}
  void bias_gelu_forward(const BiasGeluForwardArgs&) override {}
  void bias_gelu_backward(const BiasGeluBackwardArgs&) override {}
  void dropout_add_forward(const DropoutAddForwardArgs&) override {}
  void dropout_add_backward(const DropoutAddBackwardArgs&) override {}
  void layer_norm_forward(const LayerNormForwardArgs&) override {}
  void layer_norm_backward(const LayerNormBackwardArgs&) override {}
  void embedding_forward(const EmbeddingForwardArgs&) override {}
  void embedding_backward(const EmbeddingBackwardArgs&) override {}
  void cross_entropy_local(const CrossEntropyLocalArgs&) override {}
  void cross_entropy_rescale(const CrossEntropyRescaleArgs&) override {}
  void cross_entropy_loss(const CrossEntropyLossArgs&) override {}
  void cross_entropy_backward(const CrossEntropyBackwardArgs&) override {}
  void adamw(const AdamWArgs&) override {}
  void sgd(const SgdArgs&) override {}
  void square_sum(const SquareSumArgs&) override {}
  void clip_factor(const ClipFactorArgs&) override {}
  void normal(const NormalArgs&) override {}
  void fill(Tensor, double) override {}
  void copy(ConstTensor, Tensor) override {}
  void add(ConstTensor, Tensor) override {}
  void scale(Tensor, double) override {}

 private:
  double matmul_flops_ = 0, attention_flops_ = 0;
};

}  // namespace megatron
