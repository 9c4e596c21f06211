// GPT: the layers of one pipeline stage, or of one of its chunks, assembled: embedding, pre-norm blocks, head, in all
// the variants that ModelConfig names, from GPT-2 (Radford et al. 2019) to Llama (Touvron et al. 2023).
#pragma once

#include <array>
#include <optional>

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/block_stack.h"
#include "models/families/stage.h"
#include "models/layers/embedding.h"
#include "models/layers/head.h"

namespace megatron {

/// Tokens and targets, their losses' weights, and where documents begin if attention or positions begin anew with each.
BatchLayout gpt_batch_layout(const Config& config);

class GptStage final : public Stage {
 public:
  /// Declares the parameters of this rank's chunk in `store`, which the caller allocates after all chunks. All
  /// arguments but the configuration must outlive the stage.
  GptStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
           const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute = {}, int chunk = 0);

  std::span<const Link> receives() const override { return embedding_ ? std::span<const Link>() : link_; }
  std::span<const Link> sends() const override { return head_ ? std::span<const Link>() : link_; }
  std::unique_ptr<StageSaved> make_saved() const override;
  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const override;
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override;
  KeyValueCache make_cache(Arena& arena, const CacheSizes& sizes, DType type) const override;
  void infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
             Tensor logits) const override;

 private:
  struct Saved;
  ConstTensor embed(Context& context, Saved& saved) const;
  Shape activation_shape(const Context& context) const;  ///< [s(/t), b, h]

  std::array<Link, 1> link_;
  const TensorRegion& region_;
  std::optional<Embedding> embedding_;
  std::optional<BlockStack> blocks_;
  std::optional<Head> head_;
};

}  // namespace megatron
