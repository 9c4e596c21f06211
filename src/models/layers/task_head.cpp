#include "models/layers/task_head.h"

#include "base/core/ranges.h"

namespace megatron {

TaskHead::TaskHead(ParameterBuilder& builder, const TaskHeadSizes& sizes)
    : store_(&builder.store()),
      final_norm_(sizes.final_norm ? std::optional<Norm>(std::in_place, builder, "final_norm", sizes.norm)
                                   : std::nullopt),
      classifier_(builder, sizes.classifier),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

void TaskHead::forward(Context& context, ConstTensor x, Saved& saved) const {
  const Range range(context.ops.ranges(), "head");
  context.wait_for(store_->at(last_parameter_));
  if (final_norm_) {
    const Tensor normed = context.saved->allocate("final norm", x.shape(), context.pass.activation_type);
    final_norm_->forward(context, x, normed, saved.final_norm);
    x = normed;
  }
  classifier_.forward(context, x, saved.classifier);
}

void TaskHead::backward(Context& context, Saved& saved, Tensor dx) const {
  const Range range(context.ops.ranges(), "head");
  context.ops.fill(dx, 0);
  classifier_.backward(context, saved.classifier, dx);
  if (final_norm_) final_norm_->backward(context, dx, saved.final_norm, {}, dx);
}

}  // namespace megatron
