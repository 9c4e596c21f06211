#include "nn/attention.h"

#include <cmath>

namespace megatron {

namespace {

ColumnParallelLinear declare_qkv(Declare& declare, const std::string& name, const AttentionSizes& sizes) {
  const std::int64_t h = sizes.hidden;
  const int weight = declare.split_rows(name + ".query.weight", h, h, sizes.deviation);
  declare.split_rows(name + ".key.weight", h, h, sizes.deviation, /*adjacent=*/true);
  declare.split_rows(name + ".value.weight", h, h, sizes.deviation, /*adjacent=*/true);
  const int bias = declare.split_bias(name + ".query.bias", h);
  declare.split_bias(name + ".key.bias", h, /*adjacent=*/true);
  declare.split_bias(name + ".value.bias", h, /*adjacent=*/true);
  return {declare.store(), weight, bias, 3, h};
}

RowParallelLinear declare_output(Declare& declare, const std::string& name, const AttentionSizes& sizes) {
  const int weight = declare.split_columns(name + ".output.weight", sizes.hidden, sizes.hidden, sizes.output_deviation);
  const int bias = declare.whole_vector(name + ".output.bias", sizes.hidden, 0);
  return {declare.store(), weight, bias};
}

AttentionMask mask_of(const MicroBatch& micro_batch) {
  AttentionMask mask;
  mask.document_starts = micro_batch.document_starts;
  return mask;
}

}  // namespace

Attention::Attention(Declare& declare, const std::string& name, const AttentionSizes& sizes, std::int64_t layer)
    : sizes_(sizes),
      layer_(layer),
      local_heads_(exact_division(sizes.heads, declare.region().size(), "attention heads over tensor ranks")),
      local_width_(sizes.hidden / declare.region().size()),
      first_head_(local_heads_ * declare.region().rank()),
      qkv_(declare_qkv(declare, name, sizes)),
      output_(declare_output(declare, name, sizes)) {}

ConstTensor Attention::heads(ConstTensor qkv, int which) const {
  return qkv.slice(2, which * local_width_, local_width_).split_last(local_heads_);
}

Tensor Attention::heads(Tensor qkv, int which) const {
  return qkv.slice(2, which * local_width_, local_width_).split_last(local_heads_);
}

void Attention::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const std::int64_t s = context.micro_batch.sequence, b = context.micro_batch.samples;
  saved.x = x;
  saved.qkv = context.saved.allocate("query, key, value", {s, b, 3 * local_width_}, context.activation_type);
  saved.out = context.saved.allocate("attention output", {s, b, local_width_}, context.activation_type);
  saved.log_sum_exp = context.saved.allocate("attention log-sum-exp", {b, local_heads_, s}, DType::f32);

  qkv_.forward(context, x, saved.qkv);
  context.ops.add_bias({.x = as_matrix(saved.qkv), .bias = qkv_.bias()});
  context.ops.attention_forward({.q = heads(saved.qkv, 0),
                                 .k = heads(saved.qkv, 1),
                                 .v = heads(saved.qkv, 2),
                                 .out = saved.out.split_last(local_heads_),
                                 .log_sum_exp = saved.log_sum_exp,
                                 .scale = 1 / std::sqrt(static_cast<float>(sizes_.hidden / sizes_.heads)),
                                 .mask = mask_of(context.micro_batch),
                                 .dropout = context.attention_dropout(sizes_.dropout, layer_, first_head_)});
  output_.forward(context, saved.out, y);
}

void Attention::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dout = context.scratch.allocate("attention output gradient", saved.out.shape(), saved.out.dtype());
  Tensor dqkv = context.scratch.allocate("query, key, value gradient", saved.qkv.shape(), saved.qkv.dtype());

  output_.backward(context, dy, saved.out, dout);
  context.ops.attention_backward({.dout = dout.split_last(local_heads_),
                                  .q = heads(saved.qkv, 0),
                                  .k = heads(saved.qkv, 1),
                                  .v = heads(saved.qkv, 2),
                                  .out = saved.out.split_last(local_heads_),
                                  .log_sum_exp = saved.log_sum_exp,
                                  .dq = heads(dqkv, 0),
                                  .dk = heads(dqkv, 1),
                                  .dv = heads(dqkv, 2),
                                  .scale = 1 / std::sqrt(static_cast<float>(sizes_.hidden / sizes_.heads)),
                                  .mask = mask_of(context.micro_batch),
                                  .dropout = context.attention_dropout(sizes_.dropout, layer_, first_head_)});
  context.ops.column_sum({.x = as_matrix(dqkv), .y = qkv_.bias_gradient()});
  if (context.weight_work != nullptr) {  // nobody reads them again, and a product that is put off finds its operand
    context.ops.copy(dqkv, saved.qkv);
    dqkv = saved.qkv;
  }
  qkv_.backward(context, dqkv, saved.x, dx);
}

}  // namespace megatron
