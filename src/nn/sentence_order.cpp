#include "nn/sentence_order.h"

namespace megatron {

SentenceOrder::SentenceOrder(ParameterBuilder& builder, const SentenceOrderSizes& sizes)
    : store_(&builder.store()),
      sizes_(sizes),
      pooler_weight_(builder.repeated_matrix("pooler.weight", sizes.hidden, sizes.hidden, sizes.deviation)),
      pooler_bias_(builder.repeated_bias("pooler.bias", sizes.hidden)),
      order_weight_(builder.repeated_matrix("order_head.weight", kClasses, sizes.hidden, sizes.deviation)),
      order_bias_(builder.repeated_bias("order_head.bias", kClasses)),
      counted_(builder.store().declare_constant("weights of labels", std::vector<float>(kClasses, 1.0f))) {}

ConstTensor SentenceOrder::first_rows(Context& context, ConstTensor x) const {
  const Shape shape = {x.dim(1), sizes_.hidden};
  if (!context.region.sequence_parallel()) return x.slice(0, 0, 1).view(shape);
  const Tensor first = context.saved.allocate("first rows", shape, x.dtype());
  if (context.region.rank() == 0) {
    context.ops.copy(x.slice(0, 0, 1).view(shape), first);
  } else {
    context.ops.fill(first, 0);
  }
  context.region.communicator().all_reduce(first);
  return first;
}

void SentenceOrder::forward(Context& context, ConstTensor x, Saved& saved) const {
  const std::int64_t b = context.micro_batch.samples;
  const auto keep = [&](const char* what, Shape shape, DType type) {
    return context.saved.allocate(what, shape, type);
  };
  saved.first = first_rows(context, x);
  saved.pooled_product = keep("pooler product", {b, sizes_.hidden}, context.activation_type);
  saved.pooled = keep("pooled", {b, sizes_.hidden}, context.activation_type);
  saved.logits = keep("order logits", {b, kClasses}, context.activation_type);
  saved.weights = keep("weights of labels", {b}, DType::f32);
  saved.maximum = keep("order logit maximum", {b}, DType::f32);
  saved.sum_exp = keep("order sum of exponentials", {b}, DType::f32);

  context.ops.matmul(
      {.a = saved.first, .b = store_->at(pooler_weight_).value, .transpose_b = true, .c = saved.pooled_product});
  context.ops.bias_activation_forward({.x = saved.pooled_product,
                                       .bias = store_->at(pooler_bias_).value,
                                       .y = saved.pooled,
                                       .activation = Activation::tanh});
  context.ops.matmul({.a = saved.pooled, .b = store_->at(order_weight_).value, .transpose_b = true, .c = saved.logits});
  context.ops.add_bias({.x = saved.logits, .bias = store_->at(order_bias_).value});

  const ConstTensor labels = context.rows().labels;
  // Where there is no label the look-up finds no row, which is a weight of 0.
  context.ops.embedding_forward(
      {.ids = labels, .weight = store_->constant(counted_).view({kClasses, 1}), .y = saved.weights.view({b, 1})});
  const ArenaScope scope(context.scratch);
  const Tensor target_logit = context.scratch.allocate("label logit", {b}, DType::f32);
  context.ops.cross_entropy_local({.logits = saved.logits,
                                   .targets = labels,
                                   .vocab_size = kClasses,
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

void SentenceOrder::backward_linear(Context& context, ConstTensor dy, ConstTensor x, int weight, int bias,
                                    Tensor dx) const {
  context.ops.matmul({.a = dy, .b = store_->at(weight).value, .c = dx});
  const WeightProduct product{
      .layer = WeightProduct::Layer::whole, .dy = dy, .x = x, .gradient = store_->at(weight).gradient};
  context.weight_gradients.add(context, product, context.weight_gradients.start_gather(context, product));
  if (bias != kNone) context.ops.column_sum({.x = dy, .y = store_->at(bias).gradient});
}

void SentenceOrder::backward(Context& context, Saved& saved, Tensor dx) const {
  context.ops.cross_entropy_backward({.logits = saved.logits,
                                      .targets = context.rows().labels,
                                      .vocab_size = kClasses,
                                      .maximum = saved.maximum,
                                      .sum_exp = saved.sum_exp,
                                      .weights = saved.weights,
                                      .scale = static_cast<float>(context.gradient_scale(sizes_.loss_term))});
  const ArenaScope scope(context.scratch);
  const Shape shape = saved.pooled.shape();
  const Tensor dproduct = context.weight_gradients.allocate(context, "pooler gradient", shape, saved.pooled.dtype());
  const Tensor dfirst = context.scratch.allocate("gradient of first rows", shape, saved.pooled.dtype());
  backward_linear(context, saved.logits, saved.pooled, order_weight_, order_bias_, dproduct);
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
