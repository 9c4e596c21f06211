#include "nn/mlp.h"

namespace megatron {

namespace {

ColumnParallelLinear declare_up(Declare& declare, const std::string& name, const MlpSizes& sizes) {
  const int weight = declare.split_rows(name + ".up.weight", sizes.ffn, sizes.hidden, sizes.deviation);
  const int bias = sizes.bias ? declare.split_bias(name + ".up.bias", sizes.ffn) : kNoBias;
  return {declare.store(), weight, bias, 1, sizes.hidden};
}

RowParallelLinear declare_down(Declare& declare, const std::string& name, const MlpSizes& sizes) {
  const int weight = declare.split_columns(name + ".down.weight", sizes.hidden, sizes.ffn, sizes.output_deviation);
  const int bias = sizes.bias ? declare.whole_vector(name + ".down.bias", sizes.hidden, 0) : kNoBias;
  return {declare.store(), weight, bias};
}

}  // namespace

Mlp::Mlp(Declare& declare, const std::string& name, const MlpSizes& sizes)
    : up_(declare_up(declare, name, sizes)), down_(declare_down(declare, name, sizes)) {}

void Mlp::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  activate(context, x, saved);
  project(context, saved, y);
}

void Mlp::activate(Context& context, ConstTensor x, Saved& saved) const {
  const Shape shape = {context.micro_batch.sequence, context.micro_batch.samples, up_.local_out()};
  saved.x = x;
  saved.up = context.saved.allocate("mlp up", shape, context.activation_type);
  saved.activated = context.saved.allocate("mlp activated", shape, context.activation_type);

  up_.forward(context, x, saved.up);
  context.ops.bias_activation_forward({.x = as_matrix(saved.up), .bias = up_.bias(), .y = as_matrix(saved.activated)});
}

void Mlp::project(Context& context, const Saved& saved, Tensor y) const {
  down_.forward(context, saved.activated, y);
}

void Mlp::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dactivated = context.scratch.allocate("mlp gradient", saved.up.shape(), saved.up.dtype());
  // Nobody reads `up` after this: a product that is put off finds its operand there.
  const Tensor dup = context.weight_work != nullptr ? saved.up : dactivated;

  down_.backward(context, dy, saved.activated, dactivated);
  context.ops.bias_activation_backward({.dy = as_matrix(dactivated),
                                        .x = as_matrix(saved.up),
                                        .bias = up_.bias(),
                                        .dx = as_matrix(dup),
                                        .dbias = up_.bias_gradient()});
  up_.backward(context, dup, saved.x, dx);
}

}  // namespace megatron
