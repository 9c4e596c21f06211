#include "models/families/block.h"

#include "base/core/ranges.h"

namespace megatron {

Block::Block(ParameterBuilder& builder, const std::string& name, const BlockSizes& sizes, std::int64_t layer,
             bool recompute)
    : store_(&builder.store()),
      first_parameter_(static_cast<int>(builder.store().all().size())),
      sizes_(sizes),
      layer_(layer),
      recompute_(recompute),
      attention_norm_(builder, name + ".attention_norm", sizes.norm),
      attention_(builder, name + ".attention", sizes.attention, layer),
      cross_attention_norm_(sizes.cross_attention ? std::optional<Norm>(std::in_place, builder,
                                                                        name + ".cross_attention_norm", sizes.norm)
                                                  : std::nullopt),
      cross_attention_(
          sizes.cross_attention
              ? std::optional<CrossAttention>(std::in_place, builder, name + ".cross_attention", sizes.attention, layer)
              : std::nullopt),
      mlp_norm_(sizes.residual == Residual::parallel_one_norm
                    ? std::nullopt
                    : std::optional<Norm>(std::in_place, builder, name + ".mlp_norm", sizes.norm)),
      mlp_(sizes.moe ? std::nullopt : std::optional<Mlp>(std::in_place, builder, name + ".mlp", sizes.mlp)),
      moe_(sizes.moe ? std::optional<ExpertLayer>(std::in_place, builder, name + ".moe", *sizes.moe, layer)
                     : std::nullopt),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {
  internal_check(!sizes.cross_attention || sizes.residual == Residual::sequential,
                 "cross-attention in a block of another form");
  builder.store().mark_layer(first_parameter_, last_parameter_);
}

void Block::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const Range range(context.ops.ranges(), "layer", layer_);
  context.wait_for(store_->at(last_parameter_));
  const ArenaScope scope(context.scratch);
  if (!recompute_) return run(context, x, y, saved);
  Context passing = context.saving_in(context.scratch);
  CrossSaved cross;
  ExpertLayer::Saved moe;
  Saved given_back;
  given_back.cross = &cross;
  given_back.moe = &moe;
  run(passing, x, y, given_back);
  saved.attention_norm.x = x;
}

void Block::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const Range range(context.ops.ranges(), "layer", layer_);
  context.backward_begins(store_->at(first_parameter_));
  if (recompute_) {
    const ArenaScope scope(context.scratch);
    // Memory that weight gradients read is given back here: they run at once.
    Context again = context.saving_in(context.scratch, immediate_weight_gradients());
    CrossSaved cross;
    ExpertLayer::Saved moe;
    Saved recomputed;
    recomputed.cross = &cross;
    recomputed.moe = &moe;
    if (sizes_.residual == Residual::post_norm) {
      const ConstTensor x = saved.attention_norm.x;
      run_post_norm(again, x, context.scratch.allocate("block output, again", x.shape(), x.dtype()), recomputed);
    } else {
      activate(again, saved.attention_norm.x, {}, recomputed);
    }
    run_back(again, dy, recomputed, dx);
  } else {
    run_back(context, dy, saved, dx);
  }
  context.gradients_ready(store_->at(first_parameter_));
}

void Block::activate(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  Arena& keep = *context.saved;
  const DType type = context.pass.activation_type;
  const bool parallel = sizes_.residual != Residual::sequential;
  const Tensor shared = sizes_.keeps_norms ? Tensor() : context.scratch.allocate("norm output", x.shape(), type);
  const Tensor normed = norm_output(context, "attention norm", x.shape(), shared);
  const Tensor middle = parallel && y ? y : keep.allocate("residual after attention", x.shape(), type);
  const Tensor mlp_normed = mlp_norm_ ? norm_output(context, "mlp norm", x.shape(), shared) : normed;

  attention_norm_.forward(context, x, normed, saved.attention_norm);
  attention_.forward(context, normed, middle, saved.attention);
  context.ops.dropout_add_forward(
      {.x = middle,
       .bias = attention_.output().bias(),
       .residual = x,
       .y = middle,
       .dropout = context.hidden_dropout(sizes_.hidden_dropout, random_site(LayerSite::attention_output, layer_))});

  const ConstTensor attended =
      cross_attention_ ? add_cross_attention(context, middle, shared, saved) : ConstTensor(middle);
  if (mlp_norm_) mlp_norm_->forward(context, parallel ? x : attended, mlp_normed, saved.mlp_norm);
  activate_feed_forward(context, mlp_normed, saved);
}

Tensor Block::norm_output(Context& context, const char* what, const Shape& shape, Tensor shared) const {
  return shared ? shared : context.saved->allocate(what, shape, context.pass.activation_type);
}

ConstTensor Block::input_again(Context& context, const Norm& norm, const Norm::Saved& saved, ConstTensor kept) const {
  if (sizes_.keeps_norms) return kept;
  const Tensor again = context.scratch.allocate("norm output, again", kept.shape(), kept.dtype());
  norm.again(context, saved, again);
  context.input_lasts = false;
  return again;
}

void Block::activate_feed_forward(Context& context, ConstTensor x, Saved& saved) const {
  if (moe_) return moe_->activate(context, x, *saved.moe);
  mlp_->activate(context, x, saved.mlp);
}

void Block::project_feed_forward(Context& context, const Saved& saved, Tensor y) const {
  if (moe_) return moe_->project(context, *saved.moe, y);
  mlp_->project(context, saved.mlp, y);
}

void Block::feed_forward_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  Context inside = context;
  const bool own_norm = mlp_norm_ && sizes_.residual != Residual::post_norm;
  const Norm::Saved& normed = own_norm ? saved.mlp_norm : saved.attention_norm;
  const ConstTensor x =
      input_again(inside, own_norm ? *mlp_norm_ : attention_norm_, normed, mlp_ ? saved.mlp.x : saved.moe->experts.x);
  if (moe_) {
    ExpertLayer::Saved part = *saved.moe;
    part.experts.x = x;
    part.dense.x = x;
    return moe_->backward(inside, through_dropout(inside, dy, {}, LayerSite::mlp_output), part, dx);
  }
  Mlp::Saved part = saved.mlp;
  part.x = x;
  Context at_output = mlp_->at_output(inside);
  mlp_->backward(inside, through_dropout(at_output, dy, mlp_->down().bias_gradient(), LayerSite::mlp_output), part, dx);
}

ConstTensor Block::add_cross_attention(Context& context, ConstTensor x, Tensor shared, Saved& saved) const {
  const Tensor normed = norm_output(context, "cross attention norm", x.shape(), shared);
  const Tensor sum = context.saved->allocate("residual after cross attention", x.shape(), context.pass.activation_type);
  cross_attention_norm_->forward(context, x, normed, saved.cross->norm);
  cross_attention_->forward(context, normed, sum, saved.cross->attention);
  context.ops.dropout_add_forward({.x = sum,
                                   .bias = cross_attention_->output().bias(),
                                   .residual = x,
                                   .y = sum,
                                   .dropout = context.hidden_dropout(
                                       sizes_.hidden_dropout, random_site(LayerSite::cross_attention_output, layer_))});
  return sum;
}

void Block::run_post_norm(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  const auto allocate = [&](const char* what) {
    return context.saved->allocate(what, x.shape(), context.pass.activation_type);
  };
  const Tensor attended = allocate("residual after attention");
  const Tensor normed = sizes_.keeps_norms
                            ? allocate("attention norm")
                            : context.scratch.allocate("norm output", x.shape(), context.pass.activation_type);
  const Tensor sum = allocate("residual after mlp");
  attention_.forward(context, x, attended, saved.attention);
  context.ops.dropout_add_forward(
      {.x = attended,
       .bias = attention_.output().bias(),
       .residual = x,
       .y = attended,
       .dropout = context.hidden_dropout(sizes_.hidden_dropout, random_site(LayerSite::attention_output, layer_))});
  attention_norm_.forward(context, attended, normed, saved.attention_norm);
  activate_feed_forward(context, normed, saved);
  project_feed_forward(context, saved, sum);
  context.ops.dropout_add_forward(
      {.x = sum,
       .bias = feed_forward_bias(),
       .residual = normed,
       .y = sum,
       .dropout = context.hidden_dropout(sizes_.hidden_dropout, random_site(LayerSite::mlp_output, layer_))});
  mlp_norm_->forward(context, sum, y, saved.mlp_norm);
}

void Block::run(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  if (sizes_.residual == Residual::post_norm) return run_post_norm(context, x, y, saved);
  const bool parallel = sizes_.residual != Residual::sequential;
  activate(context, x, y, saved);
  const ArenaScope scope(context.scratch);
  const Tensor output = parallel ? context.scratch.allocate("mlp output", y.shape(), y.dtype()) : y;
  project_feed_forward(context, saved, output);
  context.ops.dropout_add_forward(
      {.x = output,
       .bias = feed_forward_bias(),
       .residual = parallel ? ConstTensor(y) : saved.mlp_norm.x,
       .y = y,
       .dropout = context.hidden_dropout(sizes_.hidden_dropout, random_site(LayerSite::mlp_output, layer_))});
}

ConstTensor Block::through_dropout(Context& context, ConstTensor dy, Tensor dbias, LayerSite site) const {
  const Dropout dropout = context.hidden_dropout(sizes_.hidden_dropout, random_site(site, layer_));
  if (dropout.probability == 0) {
    if (dbias) context.ops.column_sum({.x = as_matrix(dy), .y = dbias});
    return context.weight_gradients->keep(context, dy, {});
  }
  const Tensor dropped =
      context.weight_gradients->allocate(context, "gradient through dropout", dy.shape(), dy.dtype());
  context.ops.dropout_add_backward({.dy = dy, .dx = dropped, .dbias = dbias, .dropout = dropout});
  return dropped;
}

void Block::run_back_post_norm(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dsum = context.scratch.allocate("residual gradient", dy.shape(), dy.dtype());
  const Tensor dnormed = context.scratch.allocate("norm output gradient", dy.shape(), dy.dtype());
  mlp_norm_->backward(context, dy, saved.mlp_norm, {}, dsum);
  feed_forward_back(context, dsum, saved, dnormed);
  context.ops.add(dsum, dnormed);
  attention_norm_.backward(context, dnormed, saved.attention_norm, {}, dsum);
  {
    const ArenaScope inner(context.scratch);
    const ConstTensor dattention =
        through_dropout(context, dsum, attention_.output().bias_gradient(), LayerSite::attention_output);
    attention_.backward(context, dattention, saved.attention, dx);
  }
  context.ops.add(dsum, dx);
}

void Block::cross_attention_back(Context& context, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Tensor dnormed = context.scratch.allocate("cross attention norm gradient", dx.shape(), dx.dtype());
  {
    const ArenaScope inner(context.scratch);
    const ConstTensor dcross =
        through_dropout(context, dx, cross_attention_->output().bias_gradient(), LayerSite::cross_attention_output);
    Context inside = context;
    CrossAttention::Saved part = saved.cross->attention;
    part.x = input_again(inside, *cross_attention_norm_, saved.cross->norm, part.x);
    cross_attention_->backward(inside, dcross, part, dnormed);
  }
  cross_attention_norm_->backward(context, dnormed, saved.cross->norm, dx, dx);
}

void Block::run_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  if (sizes_.residual == Residual::post_norm) return run_back_post_norm(context, dy, saved, dx);
  const ArenaScope scope(context.scratch);
  const Tensor dnormed = context.scratch.allocate("norm output gradient", dy.shape(), dy.dtype());
  // The gradient of what attention is added to: through the MLP's norm, and around it. With one norm for both: the
  // gradient of that norm's output.
  const Tensor dmiddle = context.scratch.allocate("residual gradient", dy.shape(), dy.dtype());
  feed_forward_back(context, dy, saved, mlp_norm_ ? dnormed : dmiddle);
  if (mlp_norm_) mlp_norm_->backward(context, dnormed, saved.mlp_norm, dy, dmiddle);
  if (cross_attention_) cross_attention_back(context, saved, dmiddle);
  {
    const ArenaScope inner(context.scratch);
    const ConstTensor dattention =
        through_dropout(context, sizes_.residual == Residual::sequential ? ConstTensor(dmiddle) : dy,
                        attention_.output().bias_gradient(), LayerSite::attention_output);
    Context inside = context;
    Attention::Saved part = saved.attention;
    part.x = input_again(inside, attention_norm_, saved.attention_norm, part.x);
    attention_.backward(inside, dattention, part, dnormed);
  }
  if (!mlp_norm_) context.ops.add(dmiddle, dnormed);
  attention_norm_.backward(context, dnormed, saved.attention_norm, mlp_norm_ ? ConstTensor(dmiddle) : dy, dx);
}

}  // namespace megatron
