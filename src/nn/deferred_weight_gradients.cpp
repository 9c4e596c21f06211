#include "nn/deferred_weight_gradients.h"

#include "nn/linear.h"

namespace megatron {

void DeferredWeightGradients::run(Context& context) {
  internal_check(context.deferred_gradients == nullptr, "weight gradients that are put off twice");
  for (const Record& record : records_) {
    if (record.complete_from != kProduct) {
      context.gradients_ready(record.complete_from);
      continue;
    }
    const ArenaScope scope(context.scratch);
    WeightProduct product = record.product;
    ConstTensor& outside = product.layer == WeightProduct::Layer::column_parallel ? product.x : product.dy;
    outside = context.region.enter(context.scratch, outside);
    add_weight_gradient(context, product);
  }
  records_.clear();
}

}  // namespace megatron
