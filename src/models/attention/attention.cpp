#include "models/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/attention/alibi.h"
#include "models/attention/divided_attention.h"

namespace megatron {

namespace {

ColumnParallelLinear declare_qkv(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes) {
  const std::int64_t h = sizes.hidden, groups = sizes.groups;
  const std::int64_t queries = sizes.heads * sizes.head_size, keys = groups * sizes.head_size;
  const int weight = builder.column_parallel_weight(Role::matrix, name + ".query.weight", queries, h, sizes.deviation);
  builder.column_parallel_weight(Role::matrix, name + ".key.weight", keys, h, sizes.deviation, /*adjacent=*/true,
                                 groups);
  builder.column_parallel_weight(Role::matrix, name + ".value.weight", keys, h, sizes.deviation, /*adjacent=*/true,
                                 groups);
  int bias = kNone;
  if (sizes.bias) {
    bias = builder.column_parallel_bias(name + ".query.bias", queries);
    const int key = builder.column_parallel_bias(name + ".key.bias", keys, /*adjacent=*/true, groups);
    builder.store().mark_measured(key, bias);
    builder.column_parallel_bias(name + ".value.bias", keys, /*adjacent=*/true, groups);
  }
  return {builder.store(), weight, bias, 3, h};
}

// Slopes of this rank's heads; all layers' are the same.
int declare_slopes(ParameterBuilder& builder, const AttentionSizes& sizes) {
  if (!sizes.alibi) return kNone;
  const std::vector<float> all = alibi_slopes(sizes.heads);
  const std::int64_t count = sizes.heads / builder.region().size();
  const auto first = all.begin() + count * builder.region().rank();
  return builder.store().declare_constant("ALiBi slopes", std::vector<float>(first, first + count));
}

int declare_frequencies(ParameterBuilder& builder, const AttentionSizes& sizes) {
  if (sizes.inverse_frequencies.empty()) return kNone;
  return builder.store().declare_constant("rotary frequencies", sizes.inverse_frequencies);
}

int declare_norm(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes) {
  return sizes.query_key_norm ? builder.of_fixed_size().replicated_vector_partial_gradient(Role::norm, name + ".weight",
                                                                                           sizes.head_size, 1)
                              : kNone;
}

}  // namespace

float attention_scale(const AttentionSizes& sizes) {
  const float scale = sizes.scaled ? 1 / std::sqrt(static_cast<float>(sizes.head_size)) : 1;
  return scale * static_cast<float>(sizes.scale_factor);
}

RowParallelLinear declare_attention_output(ParameterBuilder& builder, const std::string& name,
                                           const AttentionSizes& sizes) {
  const int weight = builder.row_parallel_weight(name + ".output.weight", sizes.hidden, sizes.heads * sizes.head_size,
                                                 sizes.output_deviation);
  const int bias =
      sizes.output_bias ? builder.replicated_vector(Role::vector, name + ".output.bias", sizes.hidden, 0) : kNone;
  return {builder.store(), weight, bias};
}

Attention::Attention(ParameterBuilder& builder, const std::string& name, const AttentionSizes& sizes,
                     std::int64_t layer)
    : store_(&builder.store()),
      sizes_(sizes),
      layer_(layer),
      local_heads_(exact_division(sizes.heads, builder.region().size(), "attention heads over tensor ranks")),
      local_groups_(std::max<std::int64_t>(1, sizes.groups / builder.region().size())),
      first_head_(local_heads_ * builder.region().rank()),
      slopes_(declare_slopes(builder, sizes)),
      frequencies_(declare_frequencies(builder, sizes)),
      query_norm_(declare_norm(builder, name + ".query_norm", sizes)),
      key_norm_(declare_norm(builder, name + ".key_norm", sizes)),
      qkv_(declare_qkv(builder, name, sizes)),
      output_(declare_attention_output(builder, name, sizes)) {}

Attention::Parts Attention::parts(Tensor qkv) const {
  const std::int64_t d = sizes_.head_size, query = local_heads_ * d, key = local_groups_ * d;
  return {qkv.slice(2, 0, query).split_last(local_heads_), qkv.slice(2, query, key).split_last(local_groups_),
          qkv.slice(2, query + key, key).split_last(local_groups_)};
}

Attention::Parts Attention::inputs(const Saved& saved) const {
  Parts in = parts(saved.qkv);
  if (saved.normed) {
    const std::int64_t query = local_heads_ * sizes_.head_size, key = local_groups_ * sizes_.head_size;
    in.query = saved.normed.slice(2, 0, query).split_last(local_heads_);
    in.key = saved.normed.slice(2, query, key).split_last(local_groups_);
  }
  return in;
}

void Attention::rotate(Context& context, Tensor query_and_key, bool inverse) const {
  if (frequencies_ == kNone) return;
  const std::int64_t heads = local_heads_ + local_groups_;
  context.ops.rotary({.x = query_and_key.slice(2, 0, heads * sizes_.head_size).split_last(heads),
                      .positions = context.rows().position_ids,
                      .inverse_frequencies = store_->constant(frequencies_),
                      .inverse = inverse});
}

Tensor Attention::allocate_normed(Context& context, Arena& arena) const {
  return arena.allocate(
      "normalised query, key",
      {context.rows().sequence, context.micro_batch.samples, (local_heads_ + local_groups_) * sizes_.head_size},
      context.pass.activation_type);
}

void Attention::normalise(Context& context, const Saved& saved) const {
  const Parts raw = parts(saved.qkv), normed = inputs(saved);
  const auto epsilon = static_cast<float>(sizes_.norm_epsilon);
  context.ops.layer_norm_forward({.x = raw.query,
                                  .gamma = store_->at(query_norm_).value,
                                  .beta = {},
                                  .y = normed.query,
                                  .mean = {},
                                  .rstd = saved.query_rstd,
                                  .epsilon = epsilon,
                                  .kind = Normalization::root_mean_square});
  context.ops.layer_norm_forward({.x = raw.key,
                                  .gamma = store_->at(key_norm_).value,
                                  .beta = {},
                                  .y = normed.key,
                                  .mean = {},
                                  .rstd = saved.key_rstd,
                                  .epsilon = epsilon,
                                  .kind = Normalization::root_mean_square});
  rotate(context, saved.normed, /*inverse=*/false);
}

// In place: gradients of the normalised become those of what the product made.
void Attention::normalise_back(Context& context, const Saved& saved, const Parts& gradient) const {
  const Parts raw = parts(saved.qkv);
  context.ops.layer_norm_backward({.dy = gradient.query,
                                   .x = raw.query,
                                   .gamma = store_->at(query_norm_).value,
                                   .mean = {},
                                   .rstd = saved.query_rstd,
                                   .residual_gradient = {},
                                   .dx = gradient.query,
                                   .dgamma = store_->at(query_norm_).gradient,
                                   .dbeta = {},
                                   .kind = Normalization::root_mean_square});
  context.ops.layer_norm_backward({.dy = gradient.key,
                                   .x = raw.key,
                                   .gamma = store_->at(key_norm_).value,
                                   .mean = {},
                                   .rstd = saved.key_rstd,
                                   .residual_gradient = {},
                                   .dx = gradient.key,
                                   .dgamma = store_->at(key_norm_).gradient,
                                   .dbeta = {},
                                   .kind = Normalization::root_mean_square});
}

AttentionMask Attention::mask(const Context& context) const {
  AttentionMask mask;
  mask.causal = sizes_.causal;
  mask.window = sizes_.window;
  mask.softcap = static_cast<float>(sizes_.softcap);
  mask.key_lengths = context.rows().lengths;
  mask.document_starts = context.rows().document_starts;
  if (context.cache != nullptr) mask.query_offsets = context.cache->offsets;
  if (slopes_ != kNone) mask.slopes = store_->constant(slopes_);
  if (sizes_.distance_table != kNone) {
    mask.distance_bias = store_->at(sizes_.distance_table).value;
    mask.distance_buckets = sizes_.distance_buckets;
  }
  return mask;
}

Tensor Attention::distance_gradient() const {
  return sizes_.distance_table == kNone ? Tensor() : store_->at(sizes_.distance_table).gradient;
}

void Attention::append(Context& context, Parts& in) const {
  const CachePass& pass = *context.cache;
  const KeyValueCache::Layer layer = pass.layer(layer_);
  context.ops.append_rows({.x = in.key, .offsets = pass.offsets, .y = layer.keys});
  context.ops.append_rows({.x = in.value, .offsets = pass.offsets, .y = layer.values});
  in.key = layer.keys.slice(0, 0, pass.rows);
  in.value = layer.values.slice(0, 0, pass.rows);
}

void Attention::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const std::int64_t s = context.rows().sequence, b = context.micro_batch.samples;
  const std::int64_t width = local_heads_ * sizes_.head_size;
  saved.x = x;
  saved.qkv = context.saved->allocate("query, key, value", {s, b, qkv_.local_out()}, context.pass.activation_type);
  saved.out = context.saved->allocate("attention output", {s, b, width}, context.pass.activation_type);
  saved.log_sum_exp = context.saved->allocate("attention log-sum-exp", {b, local_heads_, s}, DType::f32);
  if (sizes_.query_key_norm) {
    if (sizes_.keeps_norms) saved.normed = allocate_normed(context, *context.saved);
    saved.query_rstd = context.saved->allocate("query norm rstd", {s * b * local_heads_}, DType::f32);
    saved.key_rstd = context.saved->allocate("key norm rstd", {s * b * local_groups_}, DType::f32);
  }

  // Only around a normed query that is not kept: where a block is recomputed, what is kept lies in scratch as well.
  std::optional<ArenaScope> scope;
  qkv_.forward(context, x, saved.qkv);
  if (sizes_.query_key_norm) {
    if (!sizes_.keeps_norms) {
      scope.emplace(context.scratch);
      saved.normed = allocate_normed(context, context.scratch);
    }
    normalise(context, saved);
  } else {
    rotate(context, saved.qkv, /*inverse=*/false);
  }
  Parts in = inputs(saved);
  if (context.cache != nullptr) append(context, in);
  saved.exchange = {.given = sizes_.query_key_norm ? Tensor() : saved.qkv};
  attend(context,
         {.q = in.query,
          .k = in.key,
          .v = in.value,
          .out = saved.out.split_last(local_heads_),
          .log_sum_exp = saved.log_sum_exp,
          .scale = attention_scale(sizes_),
          .mask = mask(context),
          .dropout = context.attention_dropout(sizes_.dropout, layer_, first_head_)},
         saved.exchange);
  output_.forward(context, saved.out, y);
}

void Attention::backward(Context& context, ConstTensor dy, const Saved& kept, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  Saved saved = kept;
  if (sizes_.query_key_norm && !sizes_.keeps_norms) {
    saved.normed = allocate_normed(context, context.scratch);
    normalise(context, saved);
  }
  const Tensor dout = context.scratch.allocate("attention output gradient", saved.out.shape(), saved.out.dtype());
  const Tensor dqkv = context.scratch.allocate("query, key, value gradient", saved.qkv.shape(), saved.qkv.dtype());

  output_.backward(context, dy, saved.out, dout);
  const Parts in = inputs(saved), gradient = parts(dqkv);
  attend_back(context,
              {.dout = dout.split_last(local_heads_),
               .q = in.query,
               .k = in.key,
               .v = in.value,
               .out = saved.out.split_last(local_heads_),
               .log_sum_exp = saved.log_sum_exp,
               .dq = gradient.query,
               .dk = gradient.key,
               .dv = gradient.value,
               .scale = attention_scale(sizes_),
               .mask = mask(context),
               .dropout = context.attention_dropout(sizes_.dropout, layer_, first_head_),
               .ddistance_bias = distance_gradient()},
              saved.exchange);
  rotate(context, dqkv, /*inverse=*/true);
  if (sizes_.query_key_norm) normalise_back(context, saved, gradient);
  if (qkv_.has_bias()) context.ops.column_sum({.x = as_matrix(dqkv), .y = qkv_.bias_gradient()});
  Context at_input = context.reading_input();
  qkv_.backward(at_input, at_input.weight_gradients->keep(at_input, dqkv, saved.qkv), saved.x, dx);
}

}  // namespace megatron
