// TimedOps: operations that pass every verb on to other operations and add up what each verb costs. For benchmarks.
//
// Owns the operations it wraps. Knows names and seconds, nothing of what the verbs compute. Meaningful only for
// backends whose verbs are complete when their call returns.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ops/ops.h"
#include "train/stopwatch.h"

namespace megatron {

class TimedOps : public Ops {
 public:
  struct Cost {
    Seconds seconds;
    int calls = 0;
  };
  using Costs = std::map<std::string, Cost>;  ///< by verb

  explicit TimedOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  /// What the verbs have cost since the last call of this function.
  Costs take() { return std::exchange(costs_, {}); }

  void matmul(const MatmulArgs& args) override {
    timed("matmul", [&] { ops_->matmul(args); });
  }
  void add_bias(const AddBiasArgs& args) override {
    timed("add_bias", [&] { ops_->add_bias(args); });
  }
  void column_sum(const ColumnSumArgs& args) override {
    timed("column_sum", [&] { ops_->column_sum(args); });
  }
  void bias_gelu_forward(const BiasGeluForwardArgs& args) override {
    timed("bias_gelu_forward", [&] { ops_->bias_gelu_forward(args); });
  }
  void bias_gelu_backward(const BiasGeluBackwardArgs& args) override {
    timed("bias_gelu_backward", [&] { ops_->bias_gelu_backward(args); });
  }
  void dropout_add_forward(const DropoutAddForwardArgs& args) override {
    timed("dropout_add_forward", [&] { ops_->dropout_add_forward(args); });
  }
  void dropout_add_backward(const DropoutAddBackwardArgs& args) override {
    timed("dropout_add_backward", [&] { ops_->dropout_add_backward(args); });
  }
  void layer_norm_forward(const LayerNormForwardArgs& args) override {
    timed("layer_norm_forward", [&] { ops_->layer_norm_forward(args); });
  }
  void layer_norm_backward(const LayerNormBackwardArgs& args) override {
    timed("layer_norm_backward", [&] { ops_->layer_norm_backward(args); });
  }
  void attention_forward(const AttentionForwardArgs& args) override {
    timed("attention_forward", [&] { ops_->attention_forward(args); });
  }
  void attention_backward(const AttentionBackwardArgs& args) override {
    timed("attention_backward", [&] { ops_->attention_backward(args); });
  }
  void embedding_forward(const EmbeddingForwardArgs& args) override {
    timed("embedding_forward", [&] { ops_->embedding_forward(args); });
  }
  void embedding_backward(const EmbeddingBackwardArgs& args) override {
    timed("embedding_backward", [&] { ops_->embedding_backward(args); });
  }
  void cross_entropy_local(const CrossEntropyLocalArgs& args) override {
    timed("cross_entropy_local", [&] { ops_->cross_entropy_local(args); });
  }
  void cross_entropy_rescale(const CrossEntropyRescaleArgs& args) override {
    timed("cross_entropy_rescale", [&] { ops_->cross_entropy_rescale(args); });
  }
  void cross_entropy_loss(const CrossEntropyLossArgs& args) override {
    timed("cross_entropy_loss", [&] { ops_->cross_entropy_loss(args); });
  }
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override {
    timed("cross_entropy_backward", [&] { ops_->cross_entropy_backward(args); });
  }
  void adamw(const AdamWArgs& args) override {
    timed("adamw", [&] { ops_->adamw(args); });
  }
  void sgd(const SgdArgs& args) override {
    timed("sgd", [&] { ops_->sgd(args); });
  }
  void square_sum(const SquareSumArgs& args) override {
    timed("square_sum", [&] { ops_->square_sum(args); });
  }
  void clip_factor(const ClipFactorArgs& args) override {
    timed("clip_factor", [&] { ops_->clip_factor(args); });
  }
  void normal(const NormalArgs& args) override {
    timed("normal", [&] { ops_->normal(args); });
  }
  void fill(Tensor y, double value) override {
    timed("fill", [&] { ops_->fill(y, value); });
  }
  void copy(ConstTensor x, Tensor y) override {
    timed("copy", [&] { ops_->copy(x, y); });
  }
  void add(ConstTensor x, Tensor y) override {
    timed("add", [&] { ops_->add(x, y); });
  }
  void scale(Tensor y, double factor) override {
    timed("scale", [&] { ops_->scale(y, factor); });
  }

 private:
  template <class Verb>
  void timed(const char* name, const Verb& verb) {
    const Seconds seconds = time_of(verb);
    Cost& cost = costs_[name];
    cost.seconds = cost.seconds + seconds;
    ++cost.calls;
  }

  std::unique_ptr<Ops> ops_;
  Costs costs_;
};

}  // namespace megatron
