#include "models/experts/expert_layer.h"

#include "models/layers/as_matrix.h"

namespace megatron {

namespace {

std::optional<Mlp> declare_dense(ParameterBuilder& builder, const std::string& name, const DensePartSizes& sizes) {
  if (sizes.mix == DensePartSizes::Mix::none) return std::nullopt;
  const bool residual = sizes.mix == DensePartSizes::Mix::softmax;
  return Mlp(builder, name + (residual ? ".dense" : ".shared"), sizes.mlp);
}

}  // namespace

ExpertLayer::ExpertLayer(ParameterBuilder& builder, const std::string& name, const ExpertLayerSizes& sizes,
                         std::int64_t layer)
    : store_(&builder.store()),
      mix_(sizes.dense.mix),
      experts_(builder, name, sizes.experts, layer),
      dense_(declare_dense(builder, name, sizes.dense)) {
  const MlpSizes& mlp = sizes.dense.mlp;
  const double deviation = sizes.experts.router.deviation;
  if (mix_ == Mix::sigmoid) {
    weight_ = builder.replicated_matrix(Role::router, name + ".shared_gate.weight", 1, mlp.hidden, deviation);
  } else if (mix_ == Mix::softmax) {
    weight_ = builder.replicated_matrix(Role::router, name + ".mix.weight", 2, mlp.hidden, deviation);
    bias_ = builder.of_fixed_size().replicated_vector(Role::vector, name + ".mix.bias", 2, 0);
  }
}

void ExpertLayer::project_dense(Context& context, const Saved& saved, Tensor y) const {
  dense_->project(context, saved.dense, y);
  if (const ConstTensor bias = dense_->down().bias()) context.ops.add_bias({.x = as_matrix(y), .bias = bias});
}

void ExpertLayer::activate(Context& context, ConstTensor x, Saved& saved) const {
  experts_.activate(context, x, saved.experts);
  if (!dense_) return;
  dense_->activate(context, x, saved.dense);
  if (!weighted()) return;
  const Parameter& weight = store_->at(weight_);
  Arena& keep = *context.saved;
  saved.logits = keep.allocate("weights of a dense part", {x.dim(0), x.dim(1), weight.box.extent[0]}, DType::f32);
  saved.dense_output = keep.allocate("dense part's output", x.shape(), context.pass.activation_type);
  if (mix_ == Mix::softmax) {
    saved.expert_output = keep.allocate("sum of experts", x.shape(), context.pass.activation_type);
    experts_.project(context, saved.experts, saved.expert_output);
  }
  context.ops.matmul({.a = as_matrix(x), .b = weight.value, .transpose_b = true, .c = as_matrix(saved.logits)});
  project_dense(context, saved, saved.dense_output);
}

void ExpertLayer::project(Context& context, const Saved& saved, Tensor y) const {
  if (mix_ != Mix::softmax) experts_.project(context, saved.experts, y);
  if (mix_ == Mix::sum) {
    const ArenaScope scope(context.scratch);
    const Tensor dense = context.scratch.allocate("dense part's output", y.shape(), y.dtype());
    project_dense(context, saved, dense);
    context.ops.add(dense, y);
  } else if (weighted()) {
    context.ops.mix_rows_forward({.logits = as_matrix(saved.logits),
                                  .bias = weight_bias(),
                                  .a = as_matrix(mix_ == Mix::softmax ? saved.expert_output : y),
                                  .b = as_matrix(saved.dense_output),
                                  .y = as_matrix(y)});
  }
}

void ExpertLayer::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  if (!dense_) return experts_.backward(context, dy, saved.experts, dx);
  const ArenaScope scope(context.scratch);
  ConstTensor dexperts = dy, ddense = dy;
  Tensor dlogits;
  if (weighted()) {
    const auto place = [&](const char* what, Tensor finished) {
      return context.weight_gradients->place(
          finished, [&] { return context.scratch.allocate(what, finished.shape(), finished.dtype()); });
    };
    const bool two = mix_ == Mix::softmax;
    const Tensor of_experts = two ? place("gradient of experts' sum", saved.expert_output) : Tensor();
    const Tensor of_dense = place("gradient of a dense part", saved.dense_output);
    dlogits = context.scratch.allocate("gradient of a dense part's weights", saved.logits.shape(), DType::f32);
    context.ops.mix_rows_backward({.logits = as_matrix(saved.logits),
                                   .bias = weight_bias(),
                                   .a = two ? as_matrix(saved.expert_output) : Tensor(),
                                   .b = as_matrix(saved.dense_output),
                                   .dy = as_matrix(dy),
                                   .da = two ? as_matrix(of_experts) : Tensor(),
                                   .db = as_matrix(of_dense),
                                   .dlogits = as_matrix(dlogits)});
    ddense = of_dense;
    if (two) dexperts = of_experts;
  }
  experts_.backward(context, dexperts, saved.experts, dx);
  dense_backward(context, ddense, saved, dx);
  if (weighted()) weights_backward(context, dlogits, saved, dx);
}

void ExpertLayer::dense_backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dinput = context.scratch.allocate("gradient through a dense part", dx.shape(), dx.dtype());
  if (const Tensor dbias = dense_->down().bias_gradient()) context.ops.column_sum({.x = as_matrix(dy), .y = dbias});
  dense_->backward(context, dy, saved.dense, dinput);
  context.ops.add(dinput, dx);
}

void ExpertLayer::weights_backward(Context& context, ConstTensor dlogits, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Parameter& weight = store_->at(weight_);
  const ConstTensor x = saved.dense.x;
  if (bias_ != kNone) context.ops.column_sum({.x = as_matrix(dlogits), .y = store_->at(bias_).gradient});
  Context at_input = context.reading_input();
  WeightGradients& products = *at_input.weight_gradients;
  const Tensor converted =
      products.allocate(at_input, "gradient of a dense part's weights", dlogits.shape(), x.dtype());
  context.ops.copy(dlogits, converted);
  context.ops.matmul({.a = as_matrix(converted), .b = weight.value, .c = as_matrix(dx), .accumulate = true});
  const WeightProduct product{
      .layer = WeightProduct::Layer::whole, .dy = converted, .x = x, .gradient = weight.gradient};
  products.add(at_input, product, products.start_gather(at_input, product));
}

}  // namespace megatron
