#include "models/layers/head.h"

#include "base/core/ranges.h"

namespace megatron {

Head::Head(ParameterBuilder& builder, int word, const HeadSizes& sizes)
    : store_(&builder.store()),
      scale_(sizes.scale),
      norm_(builder, "final_norm", sizes.norm),
      loss_(builder.store(), word,
            sizes.bias ? builder.of_fixed_size().column_parallel_bias("head.bias", store_->at(word).global_shape[0])
                       : kNone,
            sizes.vocab, sizes.loss_term, sizes.chunks),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

void Head::normalize(Context& context, ConstTensor x, Tensor normed, Norm::Saved& saved) const {
  norm_.forward(context, x, normed, saved);
  if (scale_ != 1) context.ops.scale(normed, scale_);
}

void Head::logits(Context& context, ConstTensor x, Tensor logits) const {
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope kept(*context.saved), scope(context.scratch);
  const Tensor normed = context.scratch.allocate("final norm", x.shape(), context.pass.activation_type);
  Norm::Saved unused;
  normalize(context, x, normed, unused);
  loss_.logits(context, normed, logits);
}

void Head::forward(Context& context, ConstTensor x, Saved& saved) const {
  const Range range(context.ops.ranges(), "head");
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope scope(context.scratch);
  const Tensor normed = loss_.input_arena(context).allocate("final norm", x.shape(), context.pass.activation_type);
  normalize(context, x, normed, saved.norm);
  loss_.forward(context, normed, saved.loss);
}

void Head::backward(Context& context, Saved& saved, Tensor dx) const {
  const Range range(context.ops.ranges(), "head");
  const ArenaScope scope(context.scratch);
  const Tensor dnormed = context.scratch.allocate("final norm gradient", dx.shape(), dx.dtype());
  loss_.backward(context, saved.loss, dnormed);
  if (scale_ != 1) context.ops.scale(dnormed, scale_);
  norm_.backward(context, dnormed, saved.norm, {}, dx);
}

}  // namespace megatron
