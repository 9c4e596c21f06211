// Linear layers of backends that have no fused verbs for them.
#include "backend/ops/ops.h"

namespace megatron {

void Ops::linear_forward(const LinearForwardArgs& args) {
  matmul({.a = args.x, .b = args.weight, .transpose_b = true, .c = args.y});
  if (!args.bias.empty()) add_bias({.x = args.y, .bias = args.bias});
}

void Ops::linear_activation_forward(const LinearActivationForwardArgs& args) {
  matmul({.a = args.x, .b = args.weight, .transpose_b = true, .c = args.product});
  bias_activation_forward({.x = args.product, .bias = args.bias, .y = args.y, .activation = args.activation});
}

void Ops::activation_again(const ActivationAgainArgs& args) {
  bias_activation_forward({.x = args.product, .bias = args.bias, .y = args.y, .activation = args.activation});
}

void Ops::linear_activation_backward(const LinearActivationBackwardArgs& args) {
  matmul({.a = args.dy, .b = args.weight, .c = args.dactivated});
  bias_activation_backward({.dy = args.dactivated,
                            .x = args.product,
                            .bias = args.bias,
                            .dx = args.dproduct,
                            .dbias = args.dbias,
                            .activation = args.activation});
}

}  // namespace megatron
