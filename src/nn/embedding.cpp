#include "nn/embedding.h"

#include <algorithm>

#include "base/ranges.h"

namespace megatron {

namespace {
ConstTensor as_vector(ConstTensor x) {
  return x.view({x.elements()});
}
}  // namespace

Embedding::Embedding(Declare& declare, int word, const EmbeddingSizes& sizes)
    : store_(&declare.store()),
      word_(word),
      position_(sizes.positions == 0
                    ? kNone
                    : declare.whole_table("embedding.position.weight", sizes.positions, sizes.hidden, sizes.deviation)),
      sizes_(sizes) {}

ConstTensor Embedding::outside_position_ids(const Context& context) const {
  const MicroBatch& batch = context.micro_batch;
  return as_vector(batch.position_ids.slice(0, context.region.first_outside_row(batch.sequence),
                                            context.region.outside_rows(batch.sequence)));
}

void Embedding::forward(Context& context, Tensor y) const {
  const Range range(context.ops.ranges(), "embedding");
  context.acquire(store_->at(std::max(word_, position_)));  // declared behind the words
  const ArenaScope scope(context.scratch);
  const Parameter& word = store_->at(word_);
  const Tensor share = context.region.share(context.scratch, y);
  context.ops.embedding_forward({.ids = as_vector(context.micro_batch.tokens),
                                 .weight = word.value,
                                 .first_row = word.box.offset[0],
                                 .y = as_matrix(share)});
  context.region.start_leave(share, y).wait();
  if (position_ != kNone) {
    context.ops.embedding_forward({.ids = outside_position_ids(context),
                                   .weight = store_->at(position_).value,
                                   .y = as_matrix(y),
                                   .accumulate = true});
  }
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, -1, RandomSite::embedding);
  if (dropout.probability > 0) {
    context.ops.dropout_add_forward({.x = y, .bias = {}, .residual = {}, .y = y, .dropout = dropout});
  }
}

void Embedding::backward(Context& context, Tensor dy) const {
  const Range range(context.ops.ranges(), "embedding");
  const ArenaScope scope(context.scratch);
  const Dropout dropout = context.hidden_dropout(sizes_.dropout, -1, RandomSite::embedding);
  if (dropout.probability > 0) {
    context.ops.dropout_add_backward({.dy = dy, .dx = dy, .dbias = {}, .dropout = dropout});
  }
  if (position_ != kNone) {
    context.ops.embedding_backward(
        {.ids = outside_position_ids(context), .dy = as_matrix(dy), .dweight = store_->at(position_).gradient});
  }
  const Parameter& word = store_->at(word_);
  const ConstTensor whole = context.region.enter(context.scratch, dy);
  context.ops.embedding_backward({.ids = as_vector(context.micro_batch.tokens),
                                  .dy = as_matrix(whole),
                                  .first_row = word.box.offset[0],
                                  .dweight = word.gradient});
}

}  // namespace megatron
