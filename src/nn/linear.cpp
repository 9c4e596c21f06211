#include "nn/linear.h"

#include <utility>

namespace megatron {

ConstTensor as_matrix(ConstTensor x) {
  const std::int64_t columns = x.dim(x.rank() - 1);
  return x.view({x.elements() / columns, columns});
}

Tensor as_matrix(Tensor x) {
  const std::int64_t columns = x.dim(x.rank() - 1);
  return x.view({x.elements() / columns, columns});
}

void add_weight_gradient(Context& context, ConstTensor dy, ConstTensor x, Tensor gradient) {
  // By the layout alone, never by what happens to be in flight: another cut may be other bits.
  const std::int64_t rows = gradient.dim(0), half = context.region.size() > 1 ? rows / 2 : 0;
  for (const auto& [first, count] : {std::pair(std::int64_t{0}, half), std::pair(half, rows - half)}) {
    if (count == 0) continue;
    context.ops.matmul({.a = dy.slice(1, first, count),
                        .b = x,
                        .transpose_a = true,
                        .c = gradient.slice(0, first, count),
                        .accumulate = true});
    context.progress();
  }
}

ColumnParallelLinear::ColumnParallelLinear(const ParameterStore& store, int weight, int bias, int records,
                                           std::int64_t in)
    : store_(&store), weight_(weight), bias_(bias), records_(records), in_(in) {}

std::int64_t ColumnParallelLinear::local_out() const {
  std::int64_t rows = 0;
  for (int i = weight_; i < weight_ + records_; ++i) rows += store_->at(i).box.extent[0];
  return rows;
}

void ColumnParallelLinear::forward(Context& context, ConstTensor x, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, x);
  context.ops.matmul({.a = as_matrix(whole),
                      .b = store_->joint_value(weight_, records_, in_),
                      .transpose_b = true,
                      .c = as_matrix(y)});
}

void ColumnParallelLinear::backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor share = context.region.share(context.scratch, dx);
  TensorRegion::Entering entering = context.region.start_enter(context.scratch, x);
  context.ops.matmul({.a = as_matrix(dy), .b = store_->joint_value(weight_, records_, in_), .c = as_matrix(share)});
  Pending sum = context.region.start_leave(share, dx);
  entering.gathered.wait();
  add_weight_gradient(context, as_matrix(dy), as_matrix(entering.whole),
                      store_->joint_gradient(weight_, records_, in_));
  sum.wait();
}

RowParallelLinear::RowParallelLinear(const ParameterStore& store, int weight, int bias)
    : store_(&store), weight_(weight), bias_(bias) {}

void RowParallelLinear::forward(Context& context, ConstTensor x, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const Tensor share = context.region.share(context.scratch, y);
  context.ops.matmul({.a = as_matrix(x), .b = store_->at(weight_).value, .transpose_b = true, .c = as_matrix(share)});
  context.region.start_leave(share, y).wait();
}

void RowParallelLinear::backward(Context& context, ConstTensor dy, ConstTensor x, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, dy);
  context.ops.matmul({.a = as_matrix(whole), .b = store_->at(weight_).value, .c = as_matrix(dx)});
  context.progress();
  // In one piece: no sum of this layer is in flight, and halves cost more.
  context.ops.matmul({.a = as_matrix(whole),
                      .b = as_matrix(x),
                      .transpose_a = true,
                      .c = store_->at(weight_).gradient,
                      .accumulate = true});
  context.progress();
}

}  // namespace megatron
