// GPT: the layers of one pipeline stage, or of one of its chunks, assembled: embedding, pre-norm blocks, head, in all
// the variants that ModelConfig names, from GPT-2 (Radford et al. 2019) to Llama (Touvron et al. 2023).
#pragma once

#include <optional>

#include "comm/process_grid.h"
#include "config/config.h"
#include "model/stage.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"

namespace megatron {

/// Layers of each model chunk in the order of the model: parallel.layers_per_stage, or evenly. Chunk c of stage r is
/// the (c · stages + r)-th.
std::vector<std::int64_t> layers_per_chunk(const ModelConfig& model, const ParallelConfig& parallel);
/// Layers of the whole model that a backward computes again: the first recompute.layers of each model chunk.
std::int64_t recomputed_layers(const ModelConfig& model, const ParallelConfig& parallel,
                               const RecomputeConfig& recompute);

class GptStage final : public Stage {
 public:
  /// Declares the parameters of this rank's chunk in `store`, which the caller allocates after all chunks. All
  /// arguments but the configuration must outlive the stage.
  GptStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
           const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute = {}, int chunk = 0);

  bool first() const override { return embedding_.has_value(); }
  bool last() const override { return head_.has_value(); }
  int links() const override { return 1; }
  Shape link_shape(int link, std::int64_t sequence, std::int64_t samples) const override;
  std::unique_ptr<StageSaved> make_saved() const override;
  void forward(Context& context, const StageData& in, const StageData& out, Tensor loss_total,
               StageSaved& saved) const override;
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override;

  /// Next-token logits of every row of the whole model (one stage only): sets logits [s·b, V/t].
  void logits(Context& context, Tensor logits) const;

 private:
  struct Saved;
  /// Through the blocks; the result lies in context.saved, or is `out` if that is given.
  ConstTensor run_blocks(Context& context, ConstTensor x, Tensor out, Saved& saved) const;
  ConstTensor embed(Context& context, Saved& saved) const;

  ModelConfig model_;
  const TensorRegion& region_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Head> head_;
};

/// All of this rank's chunks in order (parallel.virtual_stages), declared into one store.
std::vector<std::unique_ptr<GptStage>> make_gpt_chunks(const Config& config, const ProcessGrid& grid,
                                                       const TensorRegion& region, ParameterStore& store);

}  // namespace megatron
