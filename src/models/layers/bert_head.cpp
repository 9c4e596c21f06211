#include "models/layers/bert_head.h"

#include "base/core/ranges.h"

namespace megatron {

BertHead::BertHead(ParameterBuilder& builder, int word, const BertHeadSizes& sizes)
    : store_(&builder.store()),
      sizes_(sizes),
      final_norm_(sizes.final_norm ? std::optional<Norm>(std::in_place, builder, "final_norm", sizes.norm)
                                   : std::nullopt),
      dense_weight_(builder.replicated_matrix(Role::matrix, "head.dense.weight", sizes.norm.hidden, sizes.norm.hidden,
                                              sizes.deviation)),
      dense_bias_(builder.replicated_vector(Role::vector, "head.dense.bias", sizes.norm.hidden, 0)),
      norm_(builder, "head.norm", sizes.norm),
      language_model_(builder.store(), word,
                      builder.of_fixed_size().column_parallel_bias("head.bias", store_->at(word).global_shape[0]),
                      sizes.vocab, sizes.language_model_term, sizes.chunks),
      sentence_order_(builder, {.hidden = sizes.norm.hidden,
                                .deviation = sizes.deviation,
                                .output_deviation = sizes.output_deviation,
                                .loss_term = sizes.sentence_order_term}),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

ConstTensor BertHead::transform(Context& context, ConstTensor x, Saved& saved) const {
  const auto allocate = [&](const char* what) {
    return context.saved->allocate(what, x.shape(), context.pass.activation_type);
  };
  saved.x = x;
  if (final_norm_) {
    const Tensor normed = allocate("final norm");
    final_norm_->forward(context, x, normed, saved.final_norm);
    saved.x = normed;
  }
  saved.product = allocate("head dense product");
  saved.activated = allocate("head activated");
  const Tensor normed =
      language_model_.input_arena(context).allocate("head norm", x.shape(), context.pass.activation_type);
  context.ops.matmul({.a = as_matrix(saved.x),
                      .b = store_->at(dense_weight_).value,
                      .transpose_b = true,
                      .c = as_matrix(saved.product)});
  context.ops.bias_activation_forward({.x = saved.product,
                                       .bias = store_->at(dense_bias_).value,
                                       .y = saved.activated,
                                       .activation = sizes_.activation});
  norm_.forward(context, saved.activated, normed, saved.norm);
  if (sizes_.scale != 1) context.ops.scale(normed, sizes_.scale);
  return normed;
}

void BertHead::forward(Context& context, ConstTensor x, Saved& saved) const {
  const Range range(context.ops.ranges(), "head");
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope scope(context.scratch);
  language_model_.forward(context, transform(context, x, saved), saved.language_model);
  sentence_order_.forward(context, saved.x, saved.sentence_order);
}

void BertHead::logits(Context& context, ConstTensor x, Tensor logits) const {
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope kept(*context.saved), scope(context.scratch);
  Saved unused;
  language_model_.logits(context, transform(context, x, unused), logits);
}

void BertHead::backward_dense(Context& context, Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dproduct = context.weight_gradients->allocate(context, "head dense gradient", dx.shape(), dx.dtype());
  language_model_.backward(context, saved.language_model, dproduct);
  if (sizes_.scale != 1) context.ops.scale(dproduct, sizes_.scale);
  norm_.backward(context, dproduct, saved.norm, {}, dproduct);
  context.ops.bias_activation_backward({.dy = dproduct,
                                        .x = saved.product,
                                        .bias = store_->at(dense_bias_).value,
                                        .dx = dproduct,
                                        .dbias = store_->at(dense_bias_).gradient,
                                        .activation = sizes_.activation});
  context.ops.matmul({.a = as_matrix(dproduct), .b = store_->at(dense_weight_).value, .c = as_matrix(dx)});
  const WeightProduct product{.layer = WeightProduct::Layer::whole,
                              .dy = dproduct,
                              .x = saved.x,
                              .gradient = store_->at(dense_weight_).gradient};
  context.weight_gradients->add(context, product, context.weight_gradients->start_gather(context, product));
}

void BertHead::backward(Context& context, Saved& saved, Tensor dx) const {
  const Range range(context.ops.ranges(), "head");
  backward_dense(context, saved, dx);
  sentence_order_.backward(context, saved.sentence_order, dx);
  if (final_norm_) final_norm_->backward(context, dx, saved.final_norm, {}, dx);
}

}  // namespace megatron
