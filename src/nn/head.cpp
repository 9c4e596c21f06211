#include "nn/head.h"

#include "base/ranges.h"

namespace megatron {

namespace {

// The same order as logits' rows; none where every loss counts once.
ConstTensor loss_weights(const Context& context) {
  const ConstTensor& weights = context.rows().weights;
  return weights ? weights.view({weights.elements()}) : ConstTensor();
}

}  // namespace

Head::Head(ParameterBuilder& builder, int word, const HeadSizes& sizes)
    : store_(&builder.store()),
      word_(word),
      sizes_(sizes),
      norm_(builder, "final_norm", sizes.norm),
      bias_(sizes.bias ? builder.column_parallel_bias("head.bias", store_->at(word).global_shape[0]) : kNone),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

void Head::project(Context& context, ConstTensor whole, Tensor logits) const {
  context.ops.matmul({.a = as_matrix(whole), .b = store_->at(word_).value, .transpose_b = true, .c = logits});
  if (bias_ != kNone) context.ops.add_bias({.x = logits, .bias = store_->at(bias_).value});
}

void Head::logits(Context& context, ConstTensor x, Tensor logits) const {
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope kept(context.saved), scope(context.scratch);
  const Tensor normed = context.scratch.allocate("final norm", x.shape(), context.activation_type);
  Norm::Saved unused;
  norm_.forward(context, x, normed, unused);
  project(context, context.region.enter(context.scratch, normed), logits);
}

void Head::forward(Context& context, ConstTensor x, Saved& saved) const {
  const Range range(context.ops.ranges(), "head");
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope scope(context.scratch);
  Arena& keep = context.saved;
  const Parameter& word = store_->at(word_);
  const std::int64_t rows = context.rows().sequence * context.micro_batch.samples;
  const ConstTensor targets = context.rows().targets.view({rows});

  const Tensor normed = keep.allocate("final norm", x.shape(), context.activation_type);
  norm_.forward(context, x, normed, saved.norm);
  saved.normed = normed;
  saved.logits = keep.allocate("logits", {rows, word.box.extent[0]}, context.activation_type);
  saved.maximum = keep.allocate("logit maximum", {rows}, DType::f32);
  // Both sums travel in one message.
  const Tensor sums = keep.allocate("sum of exponentials, target logit", {2, rows}, DType::f32);
  saved.sum_exp = sums.slice(0, 0, 1).view({rows});
  const Tensor target_logit = sums.slice(0, 1, 1).view({rows});

  project(context, context.region.enter(context.scratch, normed), saved.logits);

  const Tensor local_maximum = context.scratch.allocate("local logit maximum", {rows}, DType::f32);
  context.ops.cross_entropy_local({.logits = saved.logits,
                                   .targets = targets,
                                   .first_column = word.box.offset[0],
                                   .vocab_size = sizes_.vocab,
                                   .maximum = local_maximum,
                                   .sum_exp = saved.sum_exp,
                                   .target_logit = target_logit});
  context.ops.copy(local_maximum, saved.maximum);
  if (context.region.size() > 1) {
    context.region.communicator().all_reduce(saved.maximum, Reduce::maximum);
    context.ops.cross_entropy_rescale(
        {.local_maximum = local_maximum, .maximum = saved.maximum, .sum_exp = saved.sum_exp});
    context.region.communicator().all_reduce(sums);
  }
  const Tensor loss = context.loss_sum(sizes_.loss_term);
  if (!loss) return;
  const TargetResults results = context.results != nullptr ? *context.results : TargetResults();
  if (results.maximum) context.ops.copy(saved.maximum, results.maximum);
  if (results.target_logit) context.ops.copy(target_logit, results.target_logit);
  context.ops.cross_entropy_loss({.maximum = saved.maximum,
                                  .sum_exp = saved.sum_exp,
                                  .target_logit = target_logit,
                                  .weights = loss_weights(context),
                                  .losses = results.losses,
                                  .total = loss});
}

void Head::backward(Context& context, Saved& saved, Tensor dx) const {
  const Range range(context.ops.ranges(), "head");
  const ArenaScope scope(context.scratch);
  const Parameter& word = store_->at(word_);
  context.ops.cross_entropy_backward({.logits = saved.logits,
                                      .targets = context.rows().targets.view({saved.logits.dim(0)}),
                                      .first_column = word.box.offset[0],
                                      .vocab_size = sizes_.vocab,
                                      .maximum = saved.maximum,
                                      .sum_exp = saved.sum_exp,
                                      .weights = loss_weights(context),
                                      .scale = static_cast<float>(context.gradient_scale(sizes_.loss_term))});
  if (bias_ != kNone) context.ops.column_sum({.x = saved.logits, .y = store_->at(bias_).gradient});
  const Tensor dnormed = context.scratch.allocate("final norm gradient", dx.shape(), dx.dtype());
  column_parallel_backward(context,
                           {.layer = WeightProduct::Layer::column_parallel,
                            .dy = saved.logits,
                            .x = saved.normed,
                            .gradient = word.gradient},
                           word.value, dnormed);
  norm_.backward(context, dnormed, saved.norm, {}, dx);
}

}  // namespace megatron
