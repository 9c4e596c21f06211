// TimedOps: operations that pass every verb on to other operations and add up what each verb costs. For benchmarks.
// Meaningful only for backends whose verbs are complete when their call returns.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "backend/ops/device.h"
#include "backend/ops/ops_decorator.h"
#include "base/core/stopwatch.h"

namespace megatron {

class TimedOps : public OpsDecorator {
 public:
  struct Cost {
    Seconds seconds;
    int calls = 0;
  };
  using Costs = std::map<std::string, Cost>;  ///< by verb

  using OpsDecorator::OpsDecorator;
  /// Puts them around the backend's, which owns them.
  static TimedOps* around(Backend& backend) { return put_around<TimedOps>(backend); }

  // In their parts, so that products stay one line; no backend whose verbs can be timed has more than the parts.
  void linear_forward(const LinearForwardArgs& args) override { Ops::linear_forward(args); }
  void linear_activation_forward(const LinearActivationForwardArgs& args) override {
    Ops::linear_activation_forward(args);
  }
  void linear_activation_backward(const LinearActivationBackwardArgs& args) override {
    Ops::linear_activation_backward(args);
  }

  /// Costs of the verbs since the last call of this function.
  Costs take() { return std::exchange(costs_, {}); }

 private:
  void pass(const char* verb, const std::function<void()>& call) override {
    const Seconds seconds = time_of(call);
    Cost& cost = costs_[verb];
    cost.seconds = cost.seconds + seconds;
    ++cost.calls;
  }

  Costs costs_;
};

}  // namespace megatron
