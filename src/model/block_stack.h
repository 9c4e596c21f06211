// BlockStack: the blocks of one model chunk, one after the other, forward and backward; and what comes between them and
// a head that is asked for some rows alone.
#pragma once

#include <vector>

#include "model/layers.h"
#include "nn/block.h"

namespace megatron {

class BlockStack {
 public:
  using Saved = std::vector<Block::Saved>;

  /// Declares layers.N.… for the chunk's layers, of which the first recompute.layers are computed again.
  BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const ModelChunk& chunk,
             const RecomputeConfig& recompute);

  const std::vector<Block>& blocks() const { return blocks_; }
  Saved make_saved() const { return Saved(blocks_.size()); }

  /// The result lies in context.saved, or is `out` if that is given; of no blocks it is x.
  ConstTensor forward(Context& context, ConstTensor x, Tensor out, Saved& saved) const;
  /// Keeping nothing: the result lies in context.saved, or is `out` if that is given and there is a block.
  ConstTensor infer(Context& context, ConstTensor x, Tensor out) const;
  /// Sets dx, which may be dy.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  std::vector<Block> blocks_;
};

/// Of x [s, b, h], some of its s·b rows by their numbers, i32 [n]: [1, n, h], in context.saved.
ConstTensor chosen_rows(Context& context, ConstTensor x, ConstTensor rows);

}  // namespace megatron
