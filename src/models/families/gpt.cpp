#include "models/families/gpt.h"

#include "models/families/layer_sizes.h"
#include "models/families/word_table.h"

namespace megatron {

struct GptStage::Saved final : StageSaved {
  Embedding::Saved embedding;
  BlockStack::Saved blocks;
  Head::Saved head;
};

BatchLayout gpt_batch_layout(const Config& config) {
  const FieldReader reads_ids =
      config.model.positions() == PositionEmbedding::learned ? FieldReader::embedding : FieldReader::attention;
  const bool packed = config.task.given();  // several examples in a sample, each by itself
  const FieldSource ids = config.data.reset_position_ids || packed ? FieldSource::sample : FieldSource::row_numbers;
  BatchLayout layout{
      .fields = {{.name = "tokens", .view = &Rows::tokens, .reader = FieldReader::embedding},
                 {.name = "targets", .view = &Rows::targets, .reader = FieldReader::head},
                 {.name = "loss weights", .view = &Rows::weights, .reader = FieldReader::head, .type = DType::f32},
                 {.name = "position ids", .view = &Rows::position_ids, .reader = reads_ids, .source = ids},
                 {.name = "positions",
                  .view = &Rows::positions,
                  .shape = FieldShape::rows,
                  .source = FieldSource::row_numbers}},
      .sizes = {.rows = {config.model.sequence_length}, .samples = config.train.micro_batch_size}};
  if (config.data.reset_attention_mask || packed) {
    layout.fields.push_back(
        {.name = "document starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows});
  }
  return layout;
}

GptStage::GptStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
                   const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute, int chunk)
    : link_{Link{.width = model.hidden_size}}, region_(region) {
  ParameterBuilder builder(store, region), after_layers = builder.after_layers();
  const ModelChunk place = chunk_at(model, parallel, grid, chunk);

  int word = kNone;
  if (place.first || (place.last && model.tie_embeddings)) word = declare_word_table(builder, model, grid);
  if (place.first) embedding_.emplace(builder, word, embedding_sizes(model));
  blocks_.emplace(builder, block_sizes(model, grid, Sight::earlier), model.moe, place, recompute);
  if (place.last && !model.tie_embeddings) word = declare_head_table(after_layers, model);
  if (!place.last) return;
  head_.emplace(after_layers, word,
                HeadSizes{.vocab = model.vocab_size,
                          .norm = norm_sizes(model),
                          .bias = model.head_bias,
                          .scale = head_scale(model),
                          .chunks = model.head_chunks});
}

Shape GptStage::activation_shape(const Context& context) const {
  return {region_.local_sequence_length(context.rows().sequence), context.micro_batch.samples, link_[0].width};
}

std::unique_ptr<StageSaved> GptStage::make_saved() const {
  auto saved = std::make_unique<Saved>();
  saved->blocks = blocks_->make_saved();
  return saved;
}

ConstTensor GptStage::embed(Context& context, Saved& saved) const {
  const Shape shape = activation_shape(context);
  const Tensor x = context.saved->allocate("embedding", shape, context.pass.activation_type);
  embedding_->forward(context, x, saved.embedding);
  return x;
}

void GptStage::forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->forward(context, x, last() ? Tensor() : out[0], saved.blocks);
  if (last()) head_->forward(context, y, saved.head);
}

void GptStage::backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ArenaScope scope(context.scratch);
  const Shape shape = activation_shape(context);
  const Tensor dx =
      first() ? context.scratch.allocate("stage input gradient", shape, context.pass.activation_type) : din[0];
  if (last()) head_->backward(context, saved.head, dx);
  blocks_->backward(context, last() ? dx : dout[0], saved.blocks, dx);
  if (first()) embedding_->backward(context, dx, saved.embedding);
}

KeyValueCache GptStage::make_cache(Arena& arena, const CacheSizes& sizes, DType type) const {
  KeyValueCache cache;
  const std::vector<Block>& blocks = blocks_->blocks();
  if (!blocks.empty()) cache.first_layer = blocks.front().layer();
  for (const Block& block : blocks) {
    cache.layers.push_back(block.attention().make_cache(arena, sizes.capacity, sizes.samples, type));
  }
  return cache;
}

void GptStage::infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                     Tensor logits) const {
  const ArenaScope kept(*context.saved);
  Saved saved;
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->infer(context, x, last() ? Tensor() : out[0]);
  if (!last() || !logits) return;
  head_->logits(context, rows ? chosen_rows(context, y, rows) : y, logits);
}

}  // namespace megatron
