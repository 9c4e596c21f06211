// BERT: the layers of one pipeline stage, or of one of its chunks, assembled: embedding with types, blocks in which
// every token sees all others of its sample, and the two heads of pretraining (models/layers/bert_head.h) or the head
// of a task (models/layers/task_head.h). Pre-norm as Megatron's (Shoeybi et al. 2019), post-norm as the original
// (Devlin et al. 2018).
#pragma once

#include <array>
#include <optional>

#include "models/families/block_stack.h"
#include "models/families/loss_terms.h"
#include "models/families/stage.h"
#include "models/layers/bert_head.h"
#include "models/layers/embedding.h"
#include "models/layers/task_head.h"

namespace megatron {

/// Tokens of two texts with their types and the length of both together, targets of masked tokens with weights, and
/// labels of their order. For a task, labels alone.
BatchLayout bert_batch_layout(const Config& config);
/// Masked tokens, and the order of the two texts; or the task.
LossTerms bert_loss_terms(const Config& config);
/// Ties of the word table, which a task's head does not use.
std::vector<std::vector<int>> bert_ties(const Config& config);

class BertStage final : public Stage {
 public:
  /// As of GptStage.
  BertStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
            const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute = {}, int chunk = 0);

  std::span<const Link> receives() const override { return embedding_ ? std::span<const Link>() : link_; }
  std::span<const Link> sends() const override { return head_ || task_head_ ? std::span<const Link>() : link_; }
  std::unique_ptr<StageSaved> make_saved() const override;
  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const override;
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override;
  /// Without types and lengths all tokens are of the first type and see all others. Error(configuration) with a task's
  /// head.
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
  std::optional<TaskHead> task_head_;  // instead of it
};

}  // namespace megatron
