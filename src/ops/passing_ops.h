// PassingOps: operations that pass every verb on to other operations, and what can be done around each: timing,
// waiting, damage on purpose. Owns the operations it wraps; knows their names, nothing of what they compute.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "ops/ops.h"

namespace megatron {

class PassingOps : public Ops {
 public:
  explicit PassingOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  void matmul(const MatmulArgs& args) override {
    pass("matmul", [&] { ops_->matmul(args); });
  }
  void add_bias(const AddBiasArgs& args) override {
    pass("add_bias", [&] { ops_->add_bias(args); });
  }
  void column_sum(const ColumnSumArgs& args) override {
    pass("column_sum", [&] { ops_->column_sum(args); });
  }
  void bias_activation_forward(const BiasActivationForwardArgs& args) override {
    pass("bias_activation_forward", [&] { ops_->bias_activation_forward(args); });
  }
  void bias_activation_backward(const BiasActivationBackwardArgs& args) override {
    pass("bias_activation_backward", [&] { ops_->bias_activation_backward(args); });
  }
  void dropout_add_forward(const DropoutAddForwardArgs& args) override {
    pass("dropout_add_forward", [&] { ops_->dropout_add_forward(args); });
  }
  void dropout_add_backward(const DropoutAddBackwardArgs& args) override {
    pass("dropout_add_backward", [&] { ops_->dropout_add_backward(args); });
  }
  void layer_norm_forward(const LayerNormForwardArgs& args) override {
    pass("layer_norm_forward", [&] { ops_->layer_norm_forward(args); });
  }
  void layer_norm_backward(const LayerNormBackwardArgs& args) override {
    pass("layer_norm_backward", [&] { ops_->layer_norm_backward(args); });
  }
  void rotary(const RotaryArgs& args) override {
    pass("rotary", [&] { ops_->rotary(args); });
  }
  void attention_forward(const AttentionForwardArgs& args) override {
    pass("attention_forward", [&] { ops_->attention_forward(args); });
  }
  void attention_backward(const AttentionBackwardArgs& args) override {
    pass("attention_backward", [&] { ops_->attention_backward(args); });
  }
  void embedding_forward(const EmbeddingForwardArgs& args) override {
    pass("embedding_forward", [&] { ops_->embedding_forward(args); });
  }
  void embedding_backward(const EmbeddingBackwardArgs& args) override {
    pass("embedding_backward", [&] { ops_->embedding_backward(args); });
  }
  void cross_entropy_local(const CrossEntropyLocalArgs& args) override {
    pass("cross_entropy_local", [&] { ops_->cross_entropy_local(args); });
  }
  void cross_entropy_rescale(const CrossEntropyRescaleArgs& args) override {
    pass("cross_entropy_rescale", [&] { ops_->cross_entropy_rescale(args); });
  }
  void cross_entropy_loss(const CrossEntropyLossArgs& args) override {
    pass("cross_entropy_loss", [&] { ops_->cross_entropy_loss(args); });
  }
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override {
    pass("cross_entropy_backward", [&] { ops_->cross_entropy_backward(args); });
  }
  void adamw(const AdamWArgs& args) override {
    pass("adamw", [&] { ops_->adamw(args); });
  }
  void sgd(const SgdArgs& args) override {
    pass("sgd", [&] { ops_->sgd(args); });
  }
  void square_sum(const SquareSumArgs& args) override {
    pass("square_sum", [&] { ops_->square_sum(args); });
  }
  void clip_factor(const ClipFactorArgs& args) override {
    pass("clip_factor", [&] { ops_->clip_factor(args); });
  }
  void normal(const NormalArgs& args) override {
    pass("normal", [&] { ops_->normal(args); });
  }
  void fill(Tensor y, double value) override {
    pass("fill", [&] { ops_->fill(y, value); });
  }
  void copy(ConstTensor x, Tensor y) override {
    pass("copy", [&] { ops_->copy(x, y); });
  }
  void add(ConstTensor x, Tensor y) override {
    pass("add", [&] { ops_->add(x, y); });
  }
  void scale(Tensor y, double factor) override {
    pass("scale", [&] { ops_->scale(y, factor); });
  }
  void linear_forward(const LinearForwardArgs& args) override {
    pass("linear_forward", [&] { ops_->linear_forward(args); });
  }
  void linear_activation_forward(const LinearActivationForwardArgs& args) override {
    pass("linear_activation_forward", [&] { ops_->linear_activation_forward(args); });
  }
  void linear_activation_backward(const LinearActivationBackwardArgs& args) override {
    pass("linear_activation_backward", [&] { ops_->linear_activation_backward(args); });
  }
  std::size_t working_bytes() const override { return ops_->working_bytes(); }
  void reserve(std::size_t bytes) override { ops_->reserve(bytes); }
  Ranges* ranges() override { return ops_->ranges(); }

 private:
  /// Calls `call`, which is the verb of this name.
  virtual void pass(const char* verb, const std::function<void()>& call) = 0;

  std::unique_ptr<Ops> ops_;
};

}  // namespace megatron
