#include "nn/norm.h"

#include "nn/linear.h"

namespace megatron {

LayerNorm::LayerNorm(Declare& declare, const std::string& name, std::int64_t hidden, double epsilon)
    : store_(&declare.store()),
      weight_(declare.whole_vector(name + ".weight", hidden, 1)),
      bias_(declare.whole_vector(name + ".bias", hidden, 0)),
      epsilon_(static_cast<float>(epsilon)) {}

void LayerNorm::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const ConstTensor rows = as_matrix(x);
  saved.x = x;
  saved.mean = context.saved.allocate("norm mean", {rows.dim(0)}, DType::f32);
  saved.rstd = context.saved.allocate("norm rstd", {rows.dim(0)}, DType::f32);
  context.ops.layer_norm_forward({.x = rows,
                                  .gamma = store_->at(weight_).value,
                                  .beta = store_->at(bias_).value,
                                  .y = as_matrix(y),
                                  .mean = saved.mean,
                                  .rstd = saved.rstd,
                                  .epsilon = epsilon_});
}

void LayerNorm::backward(Context& context, ConstTensor dy, const Saved& saved, ConstTensor residual_gradient,
                         Tensor dx) const {
  context.ops.layer_norm_backward(
      {.dy = as_matrix(dy),
       .x = as_matrix(saved.x),
       .gamma = store_->at(weight_).value,
       .mean = saved.mean,
       .rstd = saved.rstd,
       .residual_gradient = residual_gradient ? as_matrix(residual_gradient) : ConstTensor(),
       .dx = as_matrix(dx),
       .dgamma = store_->at(weight_).gradient,
       .dbeta = store_->at(bias_).gradient});
}

}  // namespace megatron
