#include "models/layers/vocabulary_loss.h"

namespace megatron {

namespace {

// The same order as logits' rows; none where every loss counts once.
ConstTensor loss_weights(const Context& context) {
  const ConstTensor& weights = context.rows().weights;
  return weights ? weights.view({weights.elements()}) : ConstTensor();
}

}  // namespace

void VocabularyLoss::logits(Context& context, ConstTensor x, Tensor logits) const {
  const ConstTensor whole = context.region.enter(context.scratch, x);
  context.ops.matmul({.a = as_matrix(whole), .b = store_->at(word_).value, .transpose_b = true, .c = logits});
  if (bias_ != kNone) context.ops.add_bias({.x = logits, .bias = store_->at(bias_).value});
}

void VocabularyLoss::forward(Context& context, ConstTensor x, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  Arena& keep = *context.saved;
  const Parameter& word = store_->at(word_);
  const std::int64_t rows = context.rows().sequence * context.micro_batch.samples;
  const ConstTensor targets = context.rows().targets.view({rows});

  saved.x = x;
  saved.logits = keep.allocate("logits", {rows, word.box.extent[0]}, context.pass.activation_type);
  saved.maximum = keep.allocate("logit maximum", {rows}, DType::f32);
  // Both sums travel in one message.
  const Tensor sums = keep.allocate("sum of exponentials, target logit", {2, rows}, DType::f32);
  saved.sum_exp = sums.slice(0, 0, 1).view({rows});
  const Tensor target_logit = sums.slice(0, 1, 1).view({rows});

  logits(context, x, saved.logits);

  const Tensor local_maximum = context.scratch.allocate("local logit maximum", {rows}, DType::f32);
  context.ops.cross_entropy_local({.logits = saved.logits,
                                   .targets = targets,
                                   .first_column = word.box.offset[0],
                                   .vocab_size = vocab_,
                                   .maximum = local_maximum,
                                   .sum_exp = saved.sum_exp,
                                   .target_logit = target_logit});
  context.ops.copy(local_maximum, saved.maximum);
  if (context.region.size() > 1) {
    context.region.communicator().all_reduce(saved.maximum, kLogitMaxima);
    context.ops.cross_entropy_rescale(
        {.local_maximum = local_maximum, .maximum = saved.maximum, .sum_exp = saved.sum_exp});
    context.region.communicator().all_reduce(sums, kExponentials);
  }
  const Tensor loss = context.loss_sum(loss_term_);
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

void VocabularyLoss::backward(Context& context, Saved& saved, Tensor dx) const {
  const Parameter& word = store_->at(word_);
  context.ops.cross_entropy_backward({.logits = saved.logits,
                                      .targets = context.rows().targets.view({saved.logits.dim(0)}),
                                      .first_column = word.box.offset[0],
                                      .vocab_size = vocab_,
                                      .maximum = saved.maximum,
                                      .sum_exp = saved.sum_exp,
                                      .weights = loss_weights(context),
                                      .scale = static_cast<float>(context.gradient_scale(loss_term_))});
  if (bias_ != kNone) context.ops.column_sum({.x = saved.logits, .y = store_->at(bias_).gradient});
  column_parallel_backward(
      context,
      {.layer = WeightProduct::Layer::column_parallel, .dy = saved.logits, .x = saved.x, .gradient = word.gradient},
      word.value, dx);
}

}  // namespace megatron
