#include "models/layers/embedding.h"

#include "base/core/ranges.h"

namespace megatron {

namespace {

ConstTensor as_vector(ConstTensor x) {
  return x.view({x.elements()});
}

/// Ids of the rows outside the tensor region; where there are no ids, all are 0.
ConstTensor local_ids(const Context& context, const ConstTensor& ids) {
  const std::int64_t s = context.rows().sequence;
  if (!ids) {
    const std::int64_t rows = context.region.local_sequence_length(s) * context.micro_batch.samples;
    const Tensor zeros = context.scratch.allocate("ids of 0", {rows}, DType::i32);
    context.ops.fill(zeros, 0);
    return zeros;
  }
  return as_vector(ids.slice(0, context.region.local_sequence_offset(s), context.region.local_sequence_length(s)));
}

}  // namespace

std::vector<Embedding::WholeTable> Embedding::declare_tables(ParameterBuilder& builder, const EmbeddingSizes& sizes) {
  std::vector<WholeTable> tables;
  const auto declare = [&](const char* name, std::int64_t rows, ConstTensor Rows::*ids) {
    if (rows == 0) return;
    tables.push_back({builder.replicated_matrix(Role::embedding, name, rows, sizes.hidden, sizes.deviation), ids});
  };
  if (sizes.position_table != kNone) {
    tables.push_back({sizes.position_table, &Rows::position_ids});
  } else {
    declare("embedding.position.weight", sizes.positions, &Rows::position_ids);
  }
  declare("embedding.type.weight", sizes.types, &Rows::types);
  return tables;
}

Embedding::Embedding(ParameterBuilder& builder, int word, const EmbeddingSizes& sizes)
    : store_(&builder.store()),
      word_(word),
      tables_(declare_tables(builder, sizes)),
      sizes_(sizes),
      norm_(sizes.norm ? std::optional<Norm>(std::in_place, builder, "embedding.norm", *sizes.norm) : std::nullopt),
      last_parameter_(static_cast<int>(builder.store().all().size()) - 1) {}

void Embedding::forward(Context& context, Tensor y, Saved& saved) const {
  const Range range(context.ops.ranges(), "embedding");
  context.wait_for(store_->at(last_parameter_));
  const Tensor sum =
      norm_ ? context.saved->allocate("embedding before its norm", y.shape(), context.pass.activation_type) : y;
  const ArenaScope scope(context.scratch);
  const Parameter& word = store_->at(word_);
  const Tensor share = context.region.partial_sum_buffer(context.scratch, sum);
  context.ops.embedding_forward({.ids = as_vector(context.rows().tokens),
                                 .weight = word.value,
                                 .first_row = word.box.offset[0],
                                 .y = as_matrix(share)});
  context.region.start_leave(share, sum, kEmbeddingShares).wait();
  if (sizes_.scale != 1) context.ops.scale(sum, sizes_.scale);
  for (const WholeTable& table : tables_) {
    context.ops.embedding_forward({.ids = local_ids(context, context.rows().*table.ids),
                                   .weight = store_->at(table.weight).value,
                                   .y = as_matrix(sum),
                                   .accumulate = true});
  }
  if (norm_) norm_->forward(context, sum, y, saved.norm);
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, random_site(sizes_.dropout_site));
  if (dropout.probability > 0) {
    context.ops.dropout_add_forward({.x = y, .bias = {}, .residual = {}, .y = y, .dropout = dropout});
  }
}

void Embedding::backward(Context& context, Tensor dy, const Saved& saved) const {
  const Range range(context.ops.ranges(), "embedding");
  const ArenaScope scope(context.scratch);
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, random_site(sizes_.dropout_site));
  if (dropout.probability > 0) {
    context.ops.dropout_add_backward({.dy = dy, .dx = dy, .dbias = {}, .dropout = dropout});
  }
  if (norm_) norm_->backward(context, dy, saved.norm, {}, dy);
  for (const WholeTable& table : tables_) {
    context.ops.embedding_backward({.ids = local_ids(context, context.rows().*table.ids),
                                    .dy = as_matrix(dy),
                                    .dweight = store_->at(table.weight).gradient});
  }
  if (sizes_.scale != 1) context.ops.scale(dy, sizes_.scale);
  const Parameter& word = store_->at(word_);
  WeightProduct look_up{.layer = WeightProduct::Layer::look_up,
                        .dy = dy,
                        .x = as_vector(context.rows().tokens),
                        .gradient = word.gradient,
                        .first_row = word.box.offset[0]};
  WeightGradients& gradients = sizes_.with_head ? *context.weight_gradients : immediate_weight_gradients();
  if (sizes_.with_head) look_up.dy = gradients.keep(context, dy, {});
  gradients.add(context, look_up, gradients.start_gather(context, look_up));
}

}  // namespace megatron
