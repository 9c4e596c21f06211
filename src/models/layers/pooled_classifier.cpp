#include "models/layers/pooled_classifier.h"

#include <utility>

namespace megatron {

PooledClassifier::PooledClassifier(ParameterBuilder& builder, PooledClassifierSizes sizes)
    : store_(&builder.store()),
      sizes_(std::move(sizes)),
      pooler_weight_(
          builder.repeated_matrix(Role::matrix, "pooler.weight", sizes_.hidden, sizes_.hidden, sizes_.deviation)),
      pooler_bias_(builder.repeated_bias(Role::vector, "pooler.bias", sizes_.hidden)),
      weight_(builder.repeated_matrix(Role::task_head, sizes_.name + ".weight", sizes_.outputs, sizes_.hidden,
                                      sizes_.output_deviation)),
      bias_(sizes_.columns == 1
                ? builder.of_fixed_size().repeated_bias(Role::task_head, sizes_.name + ".bias", sizes_.outputs)
                : kNone),
      counted_(builder.store().declare_constant("weights of labels",
                                                std::vector<float>(static_cast<std::size_t>(sizes_.classes()), 1.0f))) {
  internal_check(sizes_.outputs == 1 || sizes_.columns == 1, "several outputs for each of several choices",
                 sizes_.outputs, sizes_.columns);
}

ConstTensor PooledClassifier::first_rows(Context& context, ConstTensor x) const {
  const Shape shape = {x.dim(1), sizes_.hidden};
  if (!context.region.sequence_parallel()) return x.slice(0, 0, 1).view(shape);
  const Tensor first = context.saved->allocate("first rows", shape, x.dtype());
  if (context.region.rank() == 0) {
    context.ops.copy(x.slice(0, 0, 1).view(shape), first);
  } else {
    context.ops.fill(first, 0);
  }
  context.region.communicator().all_reduce(first, kFirstRows);
  return first;
}

Tensor PooledClassifier::rows_of_labels(const Saved& saved) const {
  return saved.logits.view({saved.logits.dim(0) / sizes_.columns, sizes_.classes()});
}

void PooledClassifier::pool(Context& context, Saved& saved) const {
  const Shape shape = saved.first.shape();
  saved.pooled_product = context.saved->allocate("pooler product", shape, context.pass.activation_type);
  saved.pooled = context.saved->allocate("pooled", shape, context.pass.activation_type);
  context.ops.matmul(
      {.a = saved.first, .b = store_->at(pooler_weight_).value, .transpose_b = true, .c = saved.pooled_product});
  context.ops.bias_activation_forward({.x = saved.pooled_product,
                                       .bias = store_->at(pooler_bias_).value,
                                       .y = saved.pooled,
                                       .activation = Activation::tanh});
  const Dropout dropout = context.pooled_dropout(sizes_.dropout);
  if (dropout.probability == 0) return;
  const Tensor rows = saved.pooled.view({1, shape[0], shape[1]});
  context.ops.dropout_add_forward({.x = rows, .bias = {}, .residual = {}, .y = rows, .dropout = dropout});
}

void PooledClassifier::forward(Context& context, ConstTensor x, Saved& saved) const {
  saved.first = first_rows(context, x);
  pool(context, saved);
  saved.logits = context.saved->allocate("class logits", {x.dim(1), sizes_.outputs}, context.pass.activation_type);
  context.ops.matmul({.a = saved.pooled, .b = store_->at(weight_).value, .transpose_b = true, .c = saved.logits});
  if (bias_ != kNone) context.ops.add_bias({.x = saved.logits, .bias = store_->at(bias_).value});
  compute_loss(context, saved);
  if (context.results != nullptr && context.results->scores) {
    context.ops.copy(rows_of_labels(saved), context.results->scores);
  }
}

void PooledClassifier::compute_loss(Context& context, Saved& saved) const {
  const Tensor logits = rows_of_labels(saved);
  const std::int64_t n = logits.dim(0), classes = sizes_.classes();
  const auto keep = [&](const char* what) { return context.saved->allocate(what, {n}, DType::f32); };
  saved.weights = keep("weights of labels");
  saved.maximum = keep("class logit maximum");
  saved.sum_exp = keep("class sum of exponentials");
  const ConstTensor labels = context.rows().labels;
  // Where there is no label the look-up finds no row, which is a weight of 0.
  context.ops.embedding_forward(
      {.ids = labels, .weight = store_->constant(counted_).view({classes, 1}), .y = saved.weights.view({n, 1})});
  const ArenaScope scope(context.scratch);
  const Tensor target_logit = context.scratch.allocate("label logit", {n}, DType::f32);
  context.ops.cross_entropy_local({.logits = logits,
                                   .targets = labels,
                                   .vocab_size = classes,
                                   .maximum = saved.maximum,
                                   .sum_exp = saved.sum_exp,
                                   .target_logit = target_logit});
  const Tensor loss = context.loss_sum(sizes_.loss_term);
  if (!loss) return;
  context.ops.cross_entropy_loss({.maximum = saved.maximum,
                                  .sum_exp = saved.sum_exp,
                                  .target_logit = target_logit,
                                  .weights = saved.weights,
                                  .losses = {},
                                  .total = loss});
}

void PooledClassifier::backward_linear(Context& context, ConstTensor dy, ConstTensor x, int weight, int bias,
                                       Tensor dx) const {
  context.ops.matmul({.a = dy, .b = store_->at(weight).value, .c = dx});
  const WeightProduct product{
      .layer = WeightProduct::Layer::whole, .dy = dy, .x = x, .gradient = store_->at(weight).gradient};
  context.weight_gradients->add(context, product, context.weight_gradients->start_gather(context, product));
  if (bias != kNone) context.ops.column_sum({.x = dy, .y = store_->at(bias).gradient});
}

void PooledClassifier::backward(Context& context, Saved& saved, Tensor dx) const {
  context.ops.cross_entropy_backward({.logits = rows_of_labels(saved),
                                      .targets = context.rows().labels,
                                      .vocab_size = sizes_.classes(),
                                      .maximum = saved.maximum,
                                      .sum_exp = saved.sum_exp,
                                      .weights = saved.weights,
                                      .scale = static_cast<float>(context.gradient_scale(sizes_.loss_term))});
  const ArenaScope scope(context.scratch);
  const Shape shape = saved.pooled.shape();
  const Tensor dproduct = context.weight_gradients->allocate(context, "pooler gradient", shape, saved.pooled.dtype());
  const Tensor dfirst = context.scratch.allocate("gradient of first rows", shape, saved.pooled.dtype());
  backward_linear(context, saved.logits, saved.pooled, weight_, bias_, dproduct);
  if (const Dropout dropout = context.pooled_dropout(sizes_.dropout); dropout.probability > 0) {
    const Tensor rows = dproduct.view({1, shape[0], shape[1]});
    context.ops.dropout_add_backward({.dy = rows, .dx = rows, .dbias = {}, .dropout = dropout});
  }
  context.ops.bias_activation_backward({.dy = dproduct,
                                        .x = saved.pooled_product,
                                        .bias = store_->at(pooler_bias_).value,
                                        .dx = dproduct,
                                        .dbias = store_->at(pooler_bias_).gradient,
                                        .activation = Activation::tanh});
  backward_linear(context, dproduct, saved.first, pooler_weight_, kNone, dfirst);
  if (context.region.sequence_parallel() && context.region.rank() != 0) return;
  context.ops.add(dfirst, dx.slice(0, 0, 1).view(shape));
}

}  // namespace megatron
