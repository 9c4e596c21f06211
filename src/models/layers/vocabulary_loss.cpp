#include "models/layers/vocabulary_loss.h"

namespace megatron {

namespace {

// The same order as logits' rows; none where every loss counts once.
ConstTensor loss_weights(const Context& context) {
  const ConstTensor& weights = context.rows().weights;
  return weights ? weights.view({weights.elements()}) : ConstTensor();
}

std::int64_t row_count(const Context& context) {
  return context.rows().sequence * context.micro_batch.samples;
}

ConstTensor targets_of(const Context& context) {
  return context.rows().targets.view({row_count(context)});
}

}  // namespace

void VocabularyLoss::multiply(Context& context, ConstTensor x, Tensor logits) const {
  context.ops.matmul({.a = x, .b = store_->at(word_).value, .transpose_b = true, .c = logits});
  if (bias_ != kNone) context.ops.add_bias({.x = logits, .bias = store_->at(bias_).value});
}

void VocabularyLoss::logits(Context& context, ConstTensor x, Tensor logits) const {
  multiply(context, as_matrix(context.region.enter(context.scratch, x)), logits);
}

void VocabularyLoss::measure(Context& context, const Rows& rows, ConstTensor logits,
                             const Statistics& statistics) const {
  const ArenaScope scope(context.scratch);
  const Tensor local_maximum = context.scratch.allocate("local logit maximum", {rows.count}, DType::f32);
  context.ops.cross_entropy_local({.logits = logits,
                                   .targets = rows.of(targets_of(context)),
                                   .first_column = store_->at(word_).box.offset[0],
                                   .vocab_size = vocab_,
                                   .maximum = local_maximum,
                                   .sum_exp = statistics.sum_exp(),
                                   .target_logit = statistics.target_logit()});
  context.ops.copy(local_maximum, statistics.maximum);
  if (context.region.size() == 1) return;
  context.region.communicator().all_reduce(statistics.maximum, kLogitMaxima);
  context.ops.cross_entropy_rescale(
      {.local_maximum = local_maximum, .maximum = statistics.maximum, .sum_exp = statistics.sum_exp()});
  context.region.communicator().all_reduce(statistics.sums, kExponentials);
}

void VocabularyLoss::add_losses(Context& context, const Statistics& all) const {
  const Tensor loss = context.loss_sum(loss_term_);
  if (!loss) return;
  const TargetResults results = context.results != nullptr ? *context.results : TargetResults();
  if (results.maximum) context.ops.copy(all.maximum, results.maximum);
  if (results.target_logit) context.ops.copy(all.target_logit(), results.target_logit);
  context.ops.cross_entropy_loss({.maximum = all.maximum,
                                  .sum_exp = all.sum_exp(),
                                  .target_logit = all.target_logit(),
                                  .weights = loss_weights(context),
                                  .losses = results.losses,
                                  .total = loss});
}

void VocabularyLoss::differentiate(Context& context, const Rows& rows, Tensor logits,
                                   const Statistics& statistics) const {
  context.ops.cross_entropy_backward({.logits = logits,
                                      .targets = rows.of(targets_of(context)),
                                      .first_column = store_->at(word_).box.offset[0],
                                      .vocab_size = vocab_,
                                      .maximum = statistics.maximum,
                                      .sum_exp = statistics.sum_exp(),
                                      .weights = rows.of(loss_weights(context)),
                                      .scale = static_cast<float>(context.gradient_scale(loss_term_))});
  if (bias_ != kNone) context.ops.column_sum({.x = logits, .y = store_->at(bias_).gradient});
}

void VocabularyLoss::forward(Context& context, ConstTensor x, Saved& saved) const {
  if (chunks_ > 1) return forward_in_chunks(context, x, saved);
  const ArenaScope scope(context.scratch);
  Arena& keep = *context.saved;
  const std::int64_t rows = row_count(context);
  saved.x = x;
  saved.logits = keep.allocate("logits", {rows, store_->at(word_).box.extent[0]}, context.pass.activation_type);
  saved.statistics = {.maximum = keep.allocate("logit maximum", {rows}, DType::f32),
                      .sums = keep.allocate("sum of exponentials, target logit", {2, rows}, DType::f32)};
  logits(context, x, saved.logits);
  measure(context, {0, rows}, saved.logits, saved.statistics);
  add_losses(context, saved.statistics);
}

// The losses are added up when all are known, so that their sum has the bits of one chunk's.
void VocabularyLoss::forward_in_chunks(Context& context, ConstTensor x, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  Arena& scratch = context.scratch;
  const Parameter& word = store_->at(word_);
  const std::int64_t rows = row_count(context), most = (rows + chunks_ - 1) / chunks_;
  const ConstTensor whole = as_matrix(context.region.enter(scratch, x));
  const Statistics all{.maximum = scratch.allocate("logit maximum", {rows}, DType::f32),
                       .sums = scratch.allocate("sum of exponentials, target logit", {2, rows}, DType::f32)};
  const Tensor logits = scratch.allocate("logits of a chunk", {most, word.box.extent[0]}, context.pass.activation_type);
  const Tensor sums = scratch.allocate("a chunk's sums", {2 * most}, DType::f32);
  Tensor share;
  if (context.has_backward()) {
    saved.dx = context.saved->allocate("gradient of the head's input", x.shape(), context.pass.activation_type);
    share = context.region.partial_sum_buffer(scratch, saved.dx);
  }
  Pending sum;
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const std::int64_t first = rows * chunk / chunks_, end = rows * (chunk + 1) / chunks_;
    if (first == end) continue;
    const Rows here{first, end - first};
    const Tensor part = logits.slice(0, 0, here.count);
    const Statistics statistics{.maximum = here.of(all.maximum),
                                .sums = sums.slice(0, 0, 2 * here.count).view({2, here.count})};
    multiply(context, here.of(whole), part);
    measure(context, here, part, statistics);
    context.ops.copy(statistics.sum_exp(), here.of(all.sum_exp()));
    context.ops.copy(statistics.target_logit(), here.of(all.target_logit()));
    if (!share) continue;
    differentiate(context, here, part, statistics);
    context.ops.matmul({.a = part, .b = word.value, .c = here.of(as_matrix(share))});
    if (end == rows) sum = context.region.start_leave(share, saved.dx, kInputGradientShares);
    immediate_weight_gradients().add(context, {.dy = part, .x = here.of(whole), .gradient = word.gradient},
                                     {.whole = here.of(whole), .gathered = {}});
  }
  sum.wait();
  add_losses(context, all);
}

void VocabularyLoss::backward(Context& context, Saved& saved, Tensor dx) const {
  if (chunks_ > 1) return context.ops.copy(saved.dx, dx);
  const Parameter& word = store_->at(word_);
  differentiate(context, {0, saved.logits.dim(0)}, saved.logits, saved.statistics);
  column_parallel_backward(
      context,
      {.layer = WeightProduct::Layer::column_parallel, .dy = saved.logits, .x = saved.x, .gradient = word.gradient},
      word.value, dx);
}

}  // namespace megatron
