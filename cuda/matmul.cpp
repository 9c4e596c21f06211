// Products, and what cuBLASLt does to them in its epilogues while they are still in registers: bias always, GELU and
// its derivative where they pay. What the epilogue of a linear layer leaves is the activation's input with its
// bias, and so is what verbs here leave where there is no epilogue: backward never adds it.
#include "backend/ops/arguments.h"
#include "backend/ops/product_size.h"
#include "cuda/cuda_ops.h"

namespace megatron {

namespace {

bool aligned(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % 16 == 0;
}

/// The epilogues with GELU in them have been seen to slow products down on A100, and to pay on H100 (llm.c); they are
/// for 16 bits and the tanh form alone.
bool has_gelu_epilogue(const CudaDevice& device, Activation activation, const ConstTensor& gelu_input) {
  return device.capability() >= 90 && activation == Activation::gelu && size_of(gelu_input.dtype()) == 2 &&
         gelu_input.dim(1) % 8 == 0 && aligned(gelu_input.data());
}

bool is_empty(const ProductSize& size) {
  return size.m == 0 || size.n == 0 || size.k == 0;
}

/// As every verb checks its arguments.
void check_like(const char* verb, const ConstTensor& x, const ConstTensor& like) {
  with_activation_type(verb, like.dtype(), [&]<class T>(T) { (void)elements_of<T>(verb, x, like.elements()); });
}
void check_bias(const char* verb, const ConstTensor& bias, const ConstTensor& y) {
  with_activation_type(verb, y.dtype(), [&]<class T>(T) { (void)optional_elements_of<T>(verb, bias, y.dim(1)); });
}

}  // namespace

void CudaOps::matmul(const MatmulArgs& args) {
  const ProductSize size = product_size(args);
  if (size.m == 0 || size.n == 0) return;
  matmul_.multiply(args);
}

void CudaOps::linear_forward(const LinearForwardArgs& args) {
  const MatmulArgs product{.a = args.x, .b = args.weight, .transpose_b = true, .c = args.y};
  const bool fused = !args.bias.empty() && !is_empty(product_size(product)) && args.y.dtype() == args.x.dtype() &&
                     aligned(args.bias.data());
  if (fused) {
    check_bias("linear_forward", args.bias, args.y);
    if (matmul_.multiply(product, {.kind = Epilogue::Kind::bias, .bias = args.bias.data()})) return;
  }
  Ops::linear_forward(args);
}

void CudaOps::linear_activation_forward(const LinearActivationForwardArgs& args) {
  const MatmulArgs product{.a = args.x, .b = args.weight, .transpose_b = true, .c = args.y};
  // The epilogue has its GELU of sums in registers, not of the product that it leaves.
  if (!args.again && has_gelu_epilogue(device_, args.activation, args.product) && !is_empty(product_size(product)) &&
      (args.bias.empty() || aligned(args.bias.data()))) {
    check_like("linear_activation_forward", args.product, args.y);
    check_bias("linear_activation_forward", args.bias, args.y);
    const Epilogue epilogue{.kind = Epilogue::Kind::gelu,
                            .bias = args.bias.empty() ? nullptr : args.bias.data(),
                            .gelu_input = args.product.data()};
    if (matmul_.multiply(product, epilogue)) return;
  }
  linear_forward({.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.product});
  bias_activation_forward({.x = args.product, .bias = {}, .y = args.y, .activation = args.activation});
}

void CudaOps::activation_again(const ActivationAgainArgs& args) {
  bias_activation_forward({.x = args.product, .bias = {}, .y = args.y, .activation = args.activation});
}

void CudaOps::linear_activation_backward(const LinearActivationBackwardArgs& args) {
  // Where it may not overwrite what it reads, the result is copied: a schedule that has it so gets the same bits.
  const bool in_place = args.dproduct.data() == args.product.data();
  const Tensor gradient = in_place ? args.dactivated : args.dproduct;
  const MatmulArgs product{.a = args.dy, .b = args.weight, .c = gradient};
  if (has_gelu_epilogue(device_, args.activation, args.product) && !is_empty(product_size(product))) {
    check_like("linear_activation_backward", args.product, gradient);
    const Epilogue epilogue{.kind = Epilogue::Kind::gelu_gradient,
                            .gelu_input = const_cast<void*>(args.product.data())};
    if (matmul_.multiply(product, epilogue)) {
      if (!args.dbias.empty()) column_sum({.x = gradient, .y = args.dbias});
      if (in_place) copy(gradient, args.dproduct);
      return;
    }
  }
  LinearActivationBackwardArgs parts = args;
  parts.bias = {};  // is in the product
  Ops::linear_activation_backward(parts);
}

}  // namespace megatron
