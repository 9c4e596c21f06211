#include "nn/embedding.h"

#include "base/ranges.h"

namespace megatron {

namespace {
ConstTensor as_vector(ConstTensor x) {
  return x.view({x.elements()});
}
}  // namespace

Embedding::Embedding(ParameterBuilder& builder, int word, const EmbeddingSizes& sizes)
    : store_(&builder.store()),
      word_(word),
      position_(sizes.positions == 0 ? kNone
                                     : builder.replicated_matrix("embedding.position.weight", sizes.positions,
                                                                 sizes.hidden, sizes.deviation)),
      sizes_(sizes),
      norm_(sizes.norm ? std::optional<Norm>(std::in_place, builder, "embedding.norm", *sizes.norm) : std::nullopt),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

ConstTensor Embedding::local_position_ids(const Context& context) const {
  const Rows& rows = context.rows();
  return as_vector(rows.position_ids.slice(0, context.region.local_sequence_offset(rows.sequence),
                                           context.region.local_sequence_length(rows.sequence)));
}

void Embedding::forward(Context& context, Tensor y, Saved& saved) const {
  const Range range(context.ops.ranges(), "embedding");
  context.wait_for(store_->at(last_parameter_));
  const Tensor sum =
      norm_ ? context.saved.allocate("embedding before its norm", y.shape(), context.activation_type) : y;
  const ArenaScope scope(context.scratch);
  const Parameter& word = store_->at(word_);
  const Tensor share = context.region.partial_sum_buffer(context.scratch, sum);
  context.ops.embedding_forward({.ids = as_vector(context.rows().tokens),
                                 .weight = word.value,
                                 .first_row = word.box.offset[0],
                                 .y = as_matrix(share)});
  context.region.start_leave(share, sum).wait();
  if (sizes_.scale != 1) context.ops.scale(sum, sizes_.scale);
  if (position_ != kNone) {
    context.ops.embedding_forward({.ids = local_position_ids(context),
                                   .weight = store_->at(position_).value,
                                   .y = as_matrix(sum),
                                   .accumulate = true});
  }
  if (norm_) norm_->forward(context, sum, y, saved.norm);
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, -1, RandomSite::embedding);
  if (dropout.probability > 0) {
    context.ops.dropout_add_forward({.x = y, .bias = {}, .residual = {}, .y = y, .dropout = dropout});
  }
}

void Embedding::backward(Context& context, Tensor dy, const Saved& saved) const {
  const Range range(context.ops.ranges(), "embedding");
  const ArenaScope scope(context.scratch);
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, -1, RandomSite::embedding);
  if (dropout.probability > 0) {
    context.ops.dropout_add_backward({.dy = dy, .dx = dy, .dbias = {}, .dropout = dropout});
  }
  if (norm_) norm_->backward(context, dy, saved.norm, {}, dy);
  if (position_ != kNone) {
    context.ops.embedding_backward(
        {.ids = local_position_ids(context), .dy = as_matrix(dy), .dweight = store_->at(position_).gradient});
  }
  if (sizes_.scale != 1) context.ops.scale(dy, sizes_.scale);
  const Parameter& word = store_->at(word_);
  const ConstTensor whole = context.region.enter(context.scratch, dy);
  context.ops.embedding_backward({.ids = as_vector(context.rows().tokens),
                                  .dy = as_matrix(whole),
                                  .first_row = word.box.offset[0],
                                  .dweight = word.gradient});
}

}  // namespace megatron
