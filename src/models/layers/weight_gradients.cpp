#include "models/layers/weight_gradients.h"

#include <utility>

#include "models/layers/as_matrix.h"
#include "models/layers/context.h"

namespace megatron {

namespace {

/// Rows of the first of two halves of a product: whole tiles of a GPU's product, aligned in any type; 0 where there are
/// too few.
constexpr std::int64_t kHalfRows = 128;
std::int64_t first_half(std::int64_t rows) {
  return rows / 2 / kHalfRows * kHalfRows;
}

}  // namespace

TensorRegion::Entering ImmediateWeightGradients::start_gather(Context& context, WeightProduct product) {
  if (product.layer == WeightProduct::Layer::whole) return {.whole = product.x, .gathered = {}};
  return context.region.start_enter(context.scratch, product.outside());
}

// After a column-parallel layer the sum of the input's gradient is in flight: tensor ranks run the product in two parts
// of whole 128-row tiles (in one below 256 rows), between which that sum progresses.
void ImmediateWeightGradients::add(Context& context, WeightProduct product, TensorRegion::Entering gathered) {
  gathered.gathered.wait();
  product.outside() = gathered.whole;
  const bool sets = context.pass.first_sums != nullptr && context.pass.first_sums->take(product.gradient, context.ops);
  if (product.layer == WeightProduct::Layer::look_up) {
    if (sets) context.ops.fill(product.gradient, 0);
    context.ops.embedding_backward(
        {.ids = product.x, .dy = as_matrix(product.dy), .first_row = product.first_row, .dweight = product.gradient});
    return;
  }
  const ConstTensor dy = as_matrix(product.dy), x = as_matrix(product.x);
  // By the layout alone, never by what happens to be in flight: another cut may be other bits. A row-parallel layer in
  // one piece: it has no sum in flight, and halves cost more.
  const bool halves = product.layer == WeightProduct::Layer::column_parallel && context.region.size() > 1;
  const std::int64_t rows = product.gradient.dim(0), half = halves ? first_half(rows) : 0;
  for (const auto& [first, count] : {std::pair(std::int64_t{0}, half), std::pair(half, rows - half)}) {
    if (count == 0) continue;
    context.ops.matmul({.a = dy.slice(1, first, count),
                        .b = x,
                        .transpose_a = true,
                        .c = product.gradient.slice(0, first, count),
                        .accumulate = !sets});
    context.progress();
  }
}

void ImmediateWeightGradients::complete_from(const Context& context, int parameter) {
  if (reducer_ == nullptr) return;
  if (context.pass.first_sums != nullptr) context.pass.first_sums->finish_from(parameter, context.ops);
  reducer_->reduce_from(parameter);
}

Tensor ImmediateWeightGradients::allocate(Context& context, const char* what, Shape shape, DType type) {
  return context.scratch.allocate(what, shape, type);
}

ConstTensor ImmediateWeightGradients::keep(Context&, ConstTensor gradient, Tensor) {
  return gradient;
}

WeightGradients& immediate_weight_gradients() {
  static ImmediateWeightGradients without_reducer;
  return without_reducer;
}

TensorRegion::Entering DeferredWeightGradients::start_gather(Context&, WeightProduct) {
  return {};
}

void DeferredWeightGradients::add(Context&, WeightProduct product, TensorRegion::Entering) {
  records_.push_back({product, kNone});
}

void DeferredWeightGradients::complete_from(const Context&, int parameter) {
  records_.push_back({{}, parameter});
}

Tensor DeferredWeightGradients::allocate(Context& context, const char* what, Shape shape, DType type) {
  return context.saved->allocate(what, shape, type);
}

ConstTensor DeferredWeightGradients::keep(Context& context, ConstTensor gradient, Tensor finished) {
  const Tensor kept =
      finished ? finished : context.saved->allocate("gradient of a sum, kept", gradient.shape(), gradient.dtype());
  context.ops.copy(gradient, kept);
  return kept;
}

void DeferredWeightGradients::run(Context& context) {
  internal_check(!context.weight_gradients->deferred(), "weight gradients that are deferred twice");
  for (const Record& record : records_) {
    if (record.complete_from != kNone) {
      context.weight_gradients->complete_from(context, record.complete_from);
      continue;
    }
    const ArenaScope scope(context.scratch);
    context.weight_gradients->add(context, record.product,
                                  context.weight_gradients->start_gather(context, record.product));
  }
  records_.clear();
}

}  // namespace megatron
