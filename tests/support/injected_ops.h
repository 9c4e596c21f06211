// Operations that go wrong where a test says so: a number that is no number, a bit that flips in memory.
#pragma once

#include <functional>
#include <memory>

#include "backend/ops/ops_decorator.h"

namespace megatron::test {

/// Passes every verb on; after a forward layer normalisation `after_norm` may damage what it has made or read, after a
/// backward one `after_norm_backward`, after the loss `after_loss`; after a sum of squares, `after_square_sum` hears.
class InjectedOps final : public OpsDecorator {
 public:
  using OpsDecorator::OpsDecorator;
  std::function<void(const LayerNormForwardArgs&)> after_norm;
  std::function<void(const LayerNormBackwardArgs&)> after_norm_backward;
  std::function<void(const CrossEntropyLossArgs&)> after_loss;
  std::function<void()> after_square_sum;

  void layer_norm_forward(const LayerNormForwardArgs& args) override {
    OpsDecorator::layer_norm_forward(args);
    if (after_norm) after_norm(args);
  }
  void layer_norm_backward(const LayerNormBackwardArgs& args) override {
    OpsDecorator::layer_norm_backward(args);
    if (after_norm_backward) after_norm_backward(args);
  }
  void cross_entropy_loss(const CrossEntropyLossArgs& args) override {
    OpsDecorator::cross_entropy_loss(args);
    if (after_loss) after_loss(args);
  }

  void square_sum(const SquareSumArgs& args) override {
    OpsDecorator::square_sum(args);
    if (after_square_sum) after_square_sum();
  }

 private:
  void pass(const char*, const std::function<void()>& call) override { call(); }
};

}  // namespace megatron::test
