// T5: an encoder, and a decoder that attends to it (Raffel et al. 2020), as a pipeline stage or one of its chunks. Keys
// of ModelConfig choose between Megatron's form (learned positions, LayerNorm, biases) and the original (attention
// biases by distance, RMSNorm, no other biases).
#pragma once

#include <optional>
#include <vector>

#include "models/families/block_stack.h"
#include "models/families/stage.h"
#include "models/families/t5_tables.h"
#include "models/layers/embedding.h"
#include "models/layers/head.h"

namespace megatron {

/// Tokens and positions of both streams; the lengths of the encoder's, which its own layers and cross-attention read;
/// targets and their losses' weights of the decoder's, which is the main one.
BatchLayout t5_batch_layout(const Config& config);

/// This rank's chunks, as ModelFamily says.
std::vector<std::unique_ptr<Stage>> make_t5_stages(const Config& config, const ProcessGrid& grid,
                                                   const TensorRegion& region, ParameterStore& store);

/// The encoder's layers come first, then the decoder's, and a chunk holds any consecutive part of them. Its first layer
/// decides what it receives, its last layer what it sends: within the encoder, the encoder's stream; after it, the
/// encoder's normalized output ("memory"), which all decoder chunks receive and pass on next to the decoder's stream.
/// The memory's gradient travels back the same way; each chunk adds the gradient of its cross-attention layers.
class T5Stage final : public Stage {
 public:
  /// Declares the parameters of a chunk but the tables, which the rank's chunks share.
  T5Stage(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid, const T5Tables& tables,
          const ModelChunk& chunk);

  std::span<const Link> receives() const override { return receives_; }
  std::span<const Link> sends() const override { return sends_; }
  bool reads(const BatchField& field) const override;
  std::unique_ptr<StageSaved> make_saved() const override;
  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const override;
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override;
  /// For the decoder's layers here.
  KeyValueCache make_cache(Arena& arena, const CacheSizes& sizes, DType type) const override;
  /// The micro-batch has the tokens of both streams, or with context.cache the decoder's; without lengths no row is
  /// padding. Logits are the decoder's.
  void infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
             Tensor logits) const override;
  /// The micro-batch has the encoder's tokens and lengths.
  void encode(Context& context, const StageData& in, const StageData& out) const override;

 private:
  struct Saved;
  /// The final norm of the encoder.
  struct MemoryNorm {
    Norm norm;
    int last_parameter;
  };

  void declare_encoder(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid, const T5Tables& tables,
                       const ModelChunk& chunk);
  void declare_decoder(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid, const T5Tables& tables,
                       const ModelChunk& chunk);
  ConstTensor embed(Context& context, const Embedding& embedding, Embedding::Saved& saved) const;
  Shape activation_shape(const Context& context) const;  ///< [s(/t), b, h] of the context's stream
  /// Returns the encoder's output for the decoder's layers, in memory that lasts until backward; nothing in a chunk
  /// that ends inside the encoder. Without `saved`, nothing else is kept.
  ConstTensor run_encoder(Context& context, const StageData& in, const StageData& out, Saved* saved) const;
  Tensor memory_in(Context& context, const StageData& out) const;  ///< where the encoder's output goes
  /// Through the encoder's layers here: `dy` is the gradient of their output, or of the memory where they end.
  void encode_back(Context& context, ConstTensor dy, const StageData& din, Saved& saved) const;
  void decode_back(Context& context, const StageData& dout, const StageData& din, Tensor dmemory, Saved& saved) const;

  std::int64_t hidden_;
  const ParameterStore* store_;
  std::vector<Link> receives_, sends_;
  std::optional<Embedding> encoder_embedding_, decoder_embedding_;
  std::optional<BlockStack> encoder_, decoder_;
  std::optional<MemoryNorm> memory_norm_;  ///< where the encoder ends
  std::optional<Head> head_;
};

}  // namespace megatron
