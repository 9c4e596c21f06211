// CountingOps: operations that compute nothing and count the floating-point operations of matmuls and attention. With
// sizing arenas and counting communicators it plays the program's own step for --dry-run; no tensor is touched.
//
// The workspace of verbs depends on their kernels: a backend has counting operations of its own
// (ops/device.h), which know it from the arguments.
#pragma once

#include <algorithm>

#include "ops/ops.h"

namespace megatron {

/// The part of the scores' square [keys, keys] that a mask leaves: half of a causal one (its diagonal not counted), and
/// less where a query sees the last `window` positions alone.
double visible_share(std::int64_t keys, bool causal, std::int64_t window);

class CountingOps : public Ops {
 public:
  double matmul_flops() const { return matmul_flops_; }
  double attention_flops() const { return attention_flops_; }  ///< by visible_share()

  void matmul(const MatmulArgs&) override;
  void attention_forward(const AttentionForwardArgs&) override;
  void attention_backward(const AttentionBackwardArgs&) override;

  void add_bias(const AddBiasArgs&) override {}
  void column_sum(const ColumnSumArgs&) override {}
  void bias_activation_forward(const BiasActivationForwardArgs&) override {}
  void bias_activation_backward(const BiasActivationBackwardArgs&) override {}
  void dropout_add_forward(const DropoutAddForwardArgs&) override {}
  void dropout_add_backward(const DropoutAddBackwardArgs&) override {}
  void layer_norm_forward(const LayerNormForwardArgs&) override {}
  void layer_norm_backward(const LayerNormBackwardArgs&) override {}
  void rotary(const RotaryArgs&) override {}
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

  std::size_t working_bytes() const override { return working_bytes_; }
  void reserve(std::size_t) override {}

 protected:
  /// A verb that was counted works in so much.
  void works_in(std::size_t bytes) { working_bytes_ = std::max(working_bytes_, bytes); }

 private:
  double matmul_flops_ = 0, attention_flops_ = 0;
  std::size_t working_bytes_ = 0;
};

}  // namespace megatron
