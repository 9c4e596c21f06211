// BERT: the layers of one pipeline stage, or of one of its chunks, assembled: embedding with types, blocks in which
// every token sees all others of its sample, and the two heads (nn/bert_head.h). Pre-norm as Megatron's (Shoeybi et al.
// 2019), post-norm as the original (Devlin et al. 2018).
#pragma once

#include <array>
#include <optional>

#include "model/block_stack.h"
#include "model/loss_terms.h"
#include "model/stage.h"
#include "nn/bert_head.h"
#include "nn/embedding.h"

namespace megatron {

/// Tokens of two texts with their types and the length of both together, targets of masked tokens with weights, and
/// labels of their order.
BatchLayout bert_batch_layout(const Config& config);
/// Masked tokens, and the order of the two texts.
LossTerms bert_loss_terms(const Config& config);

class BertStage final : public Stage {
 public:
  /// As of GptStage.
  BertStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
            const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute = {}, int chunk = 0);

  std::span<const Link> receives() const override { return embedding_ ? std::span<const Link>() : link_; }
  std::span<const Link> sends() const override { return head_ ? std::span<const Link>() : link_; }
  std::unique_ptr<StageSaved> make_saved() const override;
  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const override;
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override;
  /// Without types and lengths all tokens are of the first type and see all others.
  void infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
             Tensor logits) const override;

 private:
  struct Saved;
  ConstTensor embed(Context& context, Saved& saved) const;
  Shape activation_shape(const Context& context) const;  ///< [s(/t), b, h]

  std::array<Link, 1> link_;
  std::optional<Embedding> embedding_;
  std::optional<BlockStack> blocks_;
  std::optional<BertHead> head_;
};

}  // namespace megatron
