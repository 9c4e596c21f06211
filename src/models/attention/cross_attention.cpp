#include "models/attention/cross_attention.h"

#include <algorithm>

#include "distributed/comm/meanings.h"

namespace megatron {

namespace {

ColumnParallelLinear declare_query(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes) {
  const std::int64_t queries = sizes.heads * sizes.head_size;
  const int weight =
      builder.column_parallel_weight(Role::matrix, name + ".query.weight", queries, sizes.hidden, sizes.deviation);
  const int bias = sizes.bias ? builder.column_parallel_bias(name + ".query.bias", queries) : kNone;
  return {builder.store(), weight, bias, 1, sizes.hidden};
}

ColumnParallelLinear declare_key_value(ParameterBuilder& builder, const std::string& name,
                                       const AttentionSizes& sizes) {
  const int query_bias = static_cast<int>(builder.store().all().size()) - 1;  // declared last, if there is one
  const std::int64_t h = sizes.hidden, groups = sizes.groups, keys = groups * sizes.head_size;
  const int weight = builder.column_parallel_weight(Role::matrix, name + ".key.weight", keys, h, sizes.deviation,
                                                    /*adjacent=*/false, groups);
  builder.column_parallel_weight(Role::matrix, name + ".value.weight", keys, h, sizes.deviation, /*adjacent=*/true,
                                 groups);
  int bias = kNone;
  if (sizes.bias) {
    bias = builder.column_parallel_bias(name + ".key.bias", keys, /*adjacent=*/false, groups);
    internal_check(builder.store().at(query_bias).name == name + ".query.bias", "the query's bias is declared last");
    builder.store().mark_measured(bias, query_bias);
    builder.column_parallel_bias(name + ".value.bias", keys, /*adjacent=*/true, groups);
  }
  return {builder.store(), weight, bias, 2, h};
}

}  // namespace

CrossAttention::CrossAttention(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes,
                               std::int64_t layer)
    : sizes_(sizes),
      layer_(layer),
      local_heads_(exact_division(sizes.heads, builder.region().size(), "attention heads over tensor ranks")),
      local_groups_(std::max<std::int64_t>(1, sizes.groups / builder.region().size())),
      first_head_(local_heads_ * builder.region().rank()),
      query_(declare_query(builder, name, sizes)),
      key_value_(declare_key_value(builder, name, sizes)),
      output_(declare_attention_output(builder, name, sizes)) {}

CrossAttention::KeyValue CrossAttention::split(Tensor key_value) const {
  const std::int64_t width = local_groups_ * sizes_.head_size;
  return {key_value.slice(2, 0, width).split_last(local_groups_),
          key_value.slice(2, width, width).split_last(local_groups_)};
}

AttentionMask CrossAttention::mask(const Context& context) const {
  AttentionMask mask;
  mask.causal = false;
  mask.softcap = static_cast<float>(sizes_.softcap);
  mask.key_lengths = context.cache != nullptr ? context.cache->memory_lengths() : context.micro_batch.encoder.lengths;
  return mask;
}

Dropout CrossAttention::dropout(const Context& context) const {
  return context.attention_dropout(sizes_.dropout, layer_, first_head_, LayerSite::cross_attention);
}

CrossAttention::KeyValue CrossAttention::project_memory(Context& context, Tensor& key_value) const {
  const std::int64_t keys = context.micro_batch.encoder.sequence, b = context.micro_batch.samples;
  key_value =
      context.saved->allocate("cross key, value", {keys, b, key_value_.local_out()}, context.pass.activation_type);
  key_value_.forward(context, context.memory.states, key_value);
  return split(key_value);
}

Tensor CrossAttention::whole(Context& context, Tensor key_value) const {
  if (!context.divided()) return key_value;
  const Shape shape = {key_value.dim(0) * context.context_ranks(), key_value.dim(1), key_value.dim(2)};
  const Tensor all = context.scratch.allocate("cross key, value of all context ranks", shape, key_value.dtype());
  context.context_region->gather_rows(context.ops, context.scratch, key_value, all, kKeysOfRows);
  return all;
}

CrossAttention::KeyValue CrossAttention::cached(const CachePass& pass) const {
  const KeyValueCache::Layer layer = pass.memory(layer_);
  return {layer.keys.slice(0, 0, pass.memory_rows), layer.values.slice(0, 0, pass.memory_rows)};
}

void CrossAttention::fill_cache(Context& context) const {
  const ArenaScope scope(*context.saved);
  const CachePass& pass = *context.cache;
  Tensor key_value;
  const KeyValue made = project_memory(context, key_value);
  const KeyValueCache::Layer layer = pass.memory(layer_);
  context.ops.append_rows({.x = made.key, .offsets = pass.offsets, .y = layer.keys});
  context.ops.append_rows({.x = made.value, .offsets = pass.offsets, .y = layer.values});
}

void CrossAttention::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const std::int64_t s = context.rows().sequence, b = context.micro_batch.samples;
  const std::int64_t width = local_heads_ * sizes_.head_size;
  const DType type = context.pass.activation_type;
  saved.x = x;
  saved.memory = context.memory.states;
  saved.query = context.saved->allocate("cross query", {s, b, width}, type);
  saved.out = context.saved->allocate("cross attention output", {s, b, width}, type);
  saved.log_sum_exp = context.saved->allocate("cross attention log-sum-exp", {b, local_heads_, s}, DType::f32);

  query_.forward(context, x, saved.query);
  if (context.cache == nullptr) project_memory(context, saved.key_value);
  const ArenaScope scope(context.scratch);
  const KeyValue in = context.cache != nullptr ? cached(*context.cache) : split(whole(context, saved.key_value));
  context.ops.attention_forward({.q = saved.query.split_last(local_heads_),
                                 .k = in.key,
                                 .v = in.value,
                                 .out = saved.out.split_last(local_heads_),
                                 .log_sum_exp = saved.log_sum_exp,
                                 .scale = attention_scale(sizes_),
                                 .mask = mask(context),
                                 .dropout = dropout(context)});
  output_.forward(context, saved.out, y);
}

void CrossAttention::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const DType type = saved.out.dtype();
  const Tensor dout = context.scratch.allocate("cross attention output gradient", saved.out.shape(), type);
  const Tensor dquery = context.scratch.allocate("cross query gradient", saved.query.shape(), type);
  const Tensor dkey_value = context.scratch.allocate("cross key, value gradient", saved.key_value.shape(), type);

  output_.backward(context, dy, saved.out, dout);
  attend_back(context, dout, saved, dquery, dkey_value);
  backward_projections(context, dquery, dkey_value, saved, dx);
}

void CrossAttention::attend_back(Context& context, Tensor dout, const Saved& saved, Tensor dquery,
                                 Tensor dkey_value) const {
  const ArenaScope scope(context.scratch);
  const Tensor key_value = whole(context, saved.key_value);
  const Tensor dwhole = context.divided()
                            ? context.scratch.allocate("gradient of cross key, value of all context ranks",
                                                       key_value.shape(), key_value.dtype())
                            : dkey_value;
  const KeyValue in = split(key_value), gradient = split(dwhole);
  context.ops.attention_backward({.dout = dout.split_last(local_heads_),
                                  .q = saved.query.split_last(local_heads_),
                                  .k = in.key,
                                  .v = in.value,
                                  .out = saved.out.split_last(local_heads_),
                                  .log_sum_exp = saved.log_sum_exp,
                                  .dq = dquery.split_last(local_heads_),
                                  .dk = gradient.key,
                                  .dv = gradient.value,
                                  .scale = attention_scale(sizes_),
                                  .mask = mask(context),
                                  .dropout = dropout(context)});
  if (context.divided()) {
    context.context_region->sum_rows(context.ops, context.scratch, dwhole, dkey_value, kKeyGradientShares);
  }
}

void CrossAttention::backward_projections(Context& context, Tensor dquery, Tensor dkey_value, const Saved& saved,
                                          Tensor dx) const {
  if (query_.has_bias()) {
    context.ops.column_sum({.x = as_matrix(dquery), .y = query_.bias_gradient()});
    context.ops.column_sum({.x = as_matrix(dkey_value), .y = key_value_.bias_gradient()});
  }
  Context at_input = context.reading_input();
  query_.backward(at_input, at_input.weight_gradients->keep(at_input, dquery, saved.query), saved.x, dx);
  const Tensor dmemory =
      context.scratch.allocate("gradient of the encoder's output", saved.memory.shape(), saved.memory.dtype());
  key_value_.backward(context, context.weight_gradients->keep(context, dkey_value, saved.key_value), saved.memory,
                      dmemory);
  context.ops.add(dmemory, context.memory.gradient);
}

}  // namespace megatron
