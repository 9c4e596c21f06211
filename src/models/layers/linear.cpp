#include "models/layers/linear.h"

#include <utility>

namespace megatron {

void column_parallel_backward(Context& context, const WeightProduct& product, ConstTensor weight, Tensor dx) {
  const ArenaScope scope(context.scratch);
  const Tensor share = context.region.partial_sum_buffer(context.scratch, dx);
  TensorRegion::Entering gathered = context.weight_gradients->start_gather(context, product);
  context.ops.matmul({.a = as_matrix(product.dy), .b = weight, .c = as_matrix(share)});
  Pending sum = context.region.start_leave(share, dx, kInputGradientShares);
  context.weight_gradients->add(context, product, std::move(gathered));
  sum.wait();
}

ColumnParallelLinear::ColumnParallelLinear(const ParameterStore& store, int weight, int bias, int records,
                                           std::int64_t in)
    : store_(&store), weight_(weight), bias_(bias), records_(records), in_(in) {}

ConstTensor ColumnParallelLinear::bias() const {
  return has_bias() ? ConstTensor(store_->joint_value(bias_, records_, 0)) : ConstTensor();
}

Tensor ColumnParallelLinear::bias_gradient() const {
  return has_bias() ? store_->joint_gradient(bias_, records_, 0) : Tensor();
}

std::int64_t ColumnParallelLinear::local_out() const {
  std::int64_t rows = 0;
  for (int i = weight_; i < weight_ + records_; ++i) rows += store_->at(i).box.extent[0];
  return rows;
}

void ColumnParallelLinear::forward(Context& context, ConstTensor x, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, x);
  context.ops.linear_forward({.x = as_matrix(whole),
                              .weight = store_->joint_value(weight_, records_, in_),
                              .bias = bias(),
                              .y = as_matrix(y)});
  context.progress();
}

void ColumnParallelLinear::forward(Context& context, ConstTensor x, Activation activation, Tensor product, Tensor y,
                                   bool again) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, x);
  context.ops.linear_activation_forward({.x = as_matrix(whole),
                                         .weight = store_->joint_value(weight_, records_, in_),
                                         .bias = bias(),
                                         .product = as_matrix(product),
                                         .y = as_matrix(y),
                                         .activation = activation,
                                         .again = again});
  context.progress();
}

void ColumnParallelLinear::backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const {
  column_parallel_backward(context,
                           {.layer = WeightProduct::Layer::column_parallel,
                            .dy = dy,
                            .x = x,
                            .gradient = store_->joint_gradient(weight_, records_, in_)},
                           store_->joint_value(weight_, records_, in_), dx);
}

RowParallelLinear::RowParallelLinear(const ParameterStore& store, int weight, int bias)
    : store_(&store), weight_(weight), bias_(bias) {}

ConstTensor RowParallelLinear::bias() const {
  return bias_ == kNone ? ConstTensor() : ConstTensor(store_->at(bias_).value);
}

Tensor RowParallelLinear::bias_gradient() const {
  return bias_ == kNone ? Tensor() : store_->at(bias_).gradient;
}

void RowParallelLinear::forward(Context& context, ConstTensor x, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const Tensor share = context.region.partial_sum_buffer(context.scratch, y);
  context.ops.matmul({.a = as_matrix(x), .b = store_->at(weight_).value, .transpose_b = true, .c = as_matrix(share)});
  context.progress();
  context.region.start_leave(share, y, kOutputShares).wait();
}

template <class InputGradient>
void RowParallelLinear::backward_by(Context& context, ConstTensor dy, ConstTensor x,
                                    const InputGradient& input_gradient) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, dy);
  input_gradient(as_matrix(whole), store_->at(weight_).value);
  context.progress();
  context.weight_gradients->add(
      context,
      {.layer = WeightProduct::Layer::row_parallel, .dy = dy, .x = x, .gradient = store_->at(weight_).gradient},
      {.whole = whole, .gathered = {}});
}

void RowParallelLinear::backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const {
  backward_by(context, dy, x, [&](ConstTensor whole, ConstTensor weight) {
    context.ops.matmul({.a = whole, .b = weight, .c = as_matrix(dx)});
  });
}

void RowParallelLinear::backward(Context& context, ConstTensor dy, ConstTensor x,
                                 LinearActivationBackwardArgs through) const {
  backward_by(context, dy, x, [&](ConstTensor whole, ConstTensor weight) {
    through.dy = whole;
    through.weight = weight;
    context.ops.linear_activation_backward(through);
  });
}

}  // namespace megatron
