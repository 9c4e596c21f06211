#include "models/layers/norm.h"

#include "models/layers/as_matrix.h"

namespace megatron {

Norm::Norm(ParameterBuilder& builder, const std::string& name, const NormSizes& sizes)
    : store_(&builder.store()),
      sizes_(sizes),
      weight_(builder.replicated_vector(Role::norm, name + ".weight", sizes.hidden, 1)),
      bias_(row_of(sizes.kind).bias ? builder.replicated_vector(Role::norm, name + ".bias", sizes.hidden, 0) : kNone) {}

void Norm::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const ConstTensor rows = as_matrix(x);
  saved.x = x;
  if (row_of(sizes_.kind).centered) saved.mean = context.saved->allocate("norm mean", {rows.dim(0)}, DType::f32);
  saved.rstd = context.saved->allocate("norm rstd", {rows.dim(0)}, DType::f32);
  normalise(context, saved, y);
}

void Norm::again(Context& context, const Saved& saved, Tensor y) const {
  normalise(context, saved, y);  // sets the statistics to what they are
}

void Norm::normalise(Context& context, const Saved& saved, Tensor y) const {
  context.ops.layer_norm_forward({.x = as_matrix(saved.x),
                                  .gamma = store_->at(weight_).value,
                                  .beta = bias_ != kNone ? ConstTensor(store_->at(bias_).value) : ConstTensor(),
                                  .y = as_matrix(y),
                                  .mean = saved.mean,
                                  .rstd = saved.rstd,
                                  .epsilon = static_cast<float>(sizes_.epsilon),
                                  .kind = sizes_.kind});
}

void Norm::backward(Context& context, ConstTensor dy, const Saved& saved, ConstTensor residual_gradient,
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
       .dbeta = bias_ != kNone ? store_->at(bias_).gradient : Tensor(),
       .kind = sizes_.kind});
}

}  // namespace megatron
