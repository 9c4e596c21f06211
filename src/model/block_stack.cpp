#include "model/block_stack.h"

#include <array>
#include <string>

namespace megatron {

BlockStack::BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const ModelChunk& chunk,
                       const RecomputeConfig& recompute) {
  blocks_.reserve(static_cast<std::size_t>(chunk.layers));
  const std::int64_t recomputed = recompute.of_chunk(chunk.layers);
  for (std::int64_t i = 0; i < chunk.layers; ++i) {
    const std::int64_t layer = chunk.first_layer + i;
    blocks_.emplace_back(builder, "layers." + std::to_string(layer), sizes, layer, i < recomputed);
  }
}

ConstTensor BlockStack::forward(Context& context, ConstTensor x, Tensor out, Saved& saved) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const bool to_out = !out.empty() && i + 1 == blocks_.size();
    const Tensor y = to_out ? out : context.saved.allocate("block output", x.shape(), context.activation_type);
    blocks_[i].forward(context, x, y, saved[i]);
    x = y;
  }
  if (blocks_.empty() && !out.empty()) context.ops.copy(x, out);
  return x;
}

ConstTensor BlockStack::infer(Context& context, ConstTensor x, Tensor out) const {
  const auto allocate = [&] { return context.saved.allocate("block output", x.shape(), context.activation_type); };
  const std::array<Tensor, 2> outputs = {allocate(), allocate()};  // a block reads one and writes the other
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor y = !out.empty() && i + 1 == blocks_.size() ? out : outputs[i % 2];
    const ArenaScope of_block(context.saved);
    Block::Saved given_back;
    blocks_[i].forward(context, x, y, given_back);
    x = y;
  }
  if (blocks_.empty() && !out.empty()) context.ops.copy(x, out);
  return x;
}

void BlockStack::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  if (blocks_.empty() && dy.data() != dx.data()) context.ops.copy(dy, dx);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward(context, dy, saved[i], dx);
    dy = dx;
  }
}

ConstTensor chosen_rows(Context& context, ConstTensor x, ConstTensor rows) {
  const Tensor chosen = context.saved.allocate("rows of the head", {1, rows.elements(), x.dim(2)}, x.dtype());
  context.ops.embedding_forward({.ids = rows, .weight = as_matrix(x), .y = as_matrix(chosen)});
  return chosen;
}

}  // namespace megatron
