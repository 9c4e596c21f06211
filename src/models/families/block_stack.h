// BlockStack: the blocks of one model chunk, one after the other, forward and backward; and what comes between them and
// a head that is asked for some rows alone.
#pragma once

#include <string>
#include <vector>

#include "models/families/block.h"
#include "models/families/layers.h"

namespace megatron {

/// Consecutive layers of a chunk that are of one kind.
struct LayerSpan {
  std::string name = "layers";
  std::int64_t first_number = 0;            ///< declared as NAME.first_number.… and following
  std::int64_t first_layer = 0;             ///< in the whole model: dropout masks depend on it
  std::int64_t layers = 0, recomputed = 0;  ///< the first `recomputed` of them are computed again by a backward,
  RecomputeParts parts = {};                ///< parts that it makes again of the others
  const MoeConfig* moe = nullptr;           ///< says by number which have experts, if the sizes have any
  std::int64_t expert_layers_before = 0;    ///< in the model's other stack, if that comes first
};

class BlockStack {
 public:
  /// Saved state of each block; blocks with cross-attention or experts have their part of it in `cross` or `moe`.
  struct Saved {
    std::vector<Block::Saved> blocks;
    std::vector<Block::CrossSaved> cross;
    std::vector<ExpertLayer::Saved> moe;

    Saved() = default;
    Saved(Saved&&) = default;
    Saved& operator=(Saved&&) = default;
  };

  /// Declares the layers' parameters.
  BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const LayerSpan& span);
  /// Declares a whole chunk's layers, as layers.N.…, of which `recompute` says what is computed again.
  BlockStack(ParameterBuilder& builder, const BlockSizes& sizes, const MoeConfig& moe, const ModelChunk& chunk,
             const RecomputeConfig& recompute);

  const std::vector<Block>& blocks() const { return blocks_; }
  Saved make_saved() const;

  /// The result lies in context.saved, or is `out` if that is given; of no blocks it is x.
  ConstTensor forward(Context& context, ConstTensor x, Tensor out, Saved& saved) const;
  /// Keeping nothing: the result lies in context.saved, or is `out` if that is given and there is a block.
  ConstTensor infer(Context& context, ConstTensor x, Tensor out) const;
  /// Sets dx, which may be dy.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  std::vector<Block> blocks_;
};

/// Chosen rows of x [s, b, h], by their numbers among its s·b rows, i32 [n]: [1, n, h], in context.saved.
ConstTensor chosen_rows(Context& context, ConstTensor x, ConstTensor rows);

}  // namespace megatron
