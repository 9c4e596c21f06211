#include "models/families/block_stack.h"

#include <algorithm>
#include <array>

namespace megatron {

namespace {

// A layer that keeps all but these parts.
BlockSizes without(RecomputeParts parts, BlockSizes sizes) {
  const KeptInner kept = parts.has(RecomputePart::feed_forward)  ? KeptInner::none
                         : parts.has(RecomputePart::activations) ? KeptInner::product
                                                                 : KeptInner::all;
  sizes.keeps_norms = sizes.attention.keeps_norms = !parts.has(RecomputePart::norms);
  sizes.mlp.kept = kept;
  if (sizes.moe) sizes.moe->experts.expert.kept = sizes.moe->dense.mlp.kept = kept;
  return sizes;
}

}  // namespace

BlockStack::BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const LayerSpan& span) {
  blocks_.reserve(static_cast<std::size_t>(span.layers));
  BlockSizes with_experts = without(span.parts, sizes), dense = with_experts;
  dense.moe.reset();
  for (std::int64_t i = 0; i < span.layers; ++i) {
    const std::int64_t number = span.first_number + i;
    const bool experts = span.moe != nullptr && span.moe->in_layer(number);
    if (experts) with_experts.moe->experts.router.row = span.expert_layers_before + span.moe->layers_among(number);
    const std::int64_t layer = span.first_layer + i;
    ParameterBuilder of_layer = builder.in_layer(layer);
    blocks_.emplace_back(of_layer, span.name + "." + std::to_string(number), experts ? with_experts : dense, layer,
                         i < span.recomputed);
  }
}

BlockStack::BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const MoeConfig& moe,
                       const ModelChunk& chunk, const RecomputeConfig& recompute)
    : BlockStack(builder, sizes,
                 {.first_number = chunk.first_layer,
                  .first_layer = chunk.first_layer,
                  .layers = chunk.layers,
                  .recomputed = recompute.of_chunk(chunk.layers),
                  .parts = recompute.parts_made(),
                  .moe = &moe}) {}

BlockStack::Saved BlockStack::make_saved() const {
  Saved saved;
  saved.blocks.resize(blocks_.size());
  const bool crosses = !blocks_.empty() && blocks_.front().has_cross_attention();
  if (crosses) saved.cross.resize(blocks_.size());
  for (std::size_t i = 0; i < saved.cross.size(); ++i) saved.blocks[i].cross = &saved.cross[i];
  const bool experts =
      std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.has_experts(); });
  if (experts) saved.moe.resize(blocks_.size());
  for (std::size_t i = 0; i < saved.moe.size(); ++i) saved.blocks[i].moe = &saved.moe[i];
  return saved;
}

ConstTensor BlockStack::forward(Context& context, ConstTensor x, Tensor out, Saved& saved) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const bool to_out = !out.empty() && i + 1 == blocks_.size();
    const Tensor y = to_out ? out : context.saved->allocate("block output", x.shape(), context.pass.activation_type);
    blocks_[i].forward(context, x, y, saved.blocks[i]);
    x = y;
  }
  if (blocks_.empty() && !out.empty()) context.ops.copy(x, out);
  return x;
}

ConstTensor BlockStack::infer(Context& context, ConstTensor x, Tensor out) const {
  const auto allocate = [&] {
    return context.saved->allocate("block output", x.shape(), context.pass.activation_type);
  };
  const std::array<Tensor, 2> outputs = {allocate(), allocate()};  // a block reads one and writes the other
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor y = !out.empty() && i + 1 == blocks_.size() ? out : outputs[i % 2];
    const ArenaScope of_block(*context.saved);
    Block::CrossSaved cross;
    ExpertLayer::Saved moe;
    Block::Saved given_back;
    given_back.cross = &cross;
    given_back.moe = &moe;
    blocks_[i].forward(context, x, y, given_back);
    x = y;
  }
  if (blocks_.empty() && !out.empty()) context.ops.copy(x, out);
  return x;
}

void BlockStack::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  if (blocks_.empty() && dy.data() != dx.data()) context.ops.copy(dy, dx);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward(context, dy, saved.blocks[i], dx);
    dy = dx;
  }
}

ConstTensor chosen_rows(Context& context, ConstTensor x, ConstTensor rows) {
  const Tensor chosen = context.saved->allocate("rows of the head", {1, rows.elements(), x.dim(2)}, x.dtype());
  context.ops.embedding_forward({.ids = rows, .weight = as_matrix(x), .y = as_matrix(chosen)});
  return chosen;
}

}  // namespace megatron
