#include "model/bert.h"

#include "model/layer_sizes.h"
#include "model/word_table.h"

namespace megatron {

namespace {

constexpr std::int64_t kTypes = 2;
enum Term { language_model, sentence_order };

EmbeddingSizes with_types(EmbeddingSizes sizes) {
  sizes.types = kTypes;
  return sizes;
}

BertHeadSizes head_sizes(const ModelConfig& model) {
  return {.vocab = model.vocab_size,
          .norm = norm_sizes(model),
          .final_norm = model.norm_position == "pre",
          .activation = row_named(kActivations, model.activation).activation,
          .deviation = model.init_std,
          .language_model_term = language_model,
          .sentence_order_term = sentence_order};
}

}  // namespace

struct BertStage::Saved final : StageSaved {
  Embedding::Saved embedding;
  BlockStack::Saved blocks;
  BertHead::Saved head;
};

LossTerms bert_loss_terms(const Config& /*config*/) {
  LossTerms terms(2);
  terms[language_model].name = "language_model";
  terms[sentence_order].name = "sentence_order";
  return terms;
}

BatchLayout bert_batch_layout(const Config& config) {
  const FieldReader reads_ids =
      config.model.position_embedding == "learned" ? FieldReader::embedding : FieldReader::attention;
  return {
      .fields = {{.name = "tokens", .view = &Rows::tokens, .reader = FieldReader::embedding},
                 {.name = "types", .view = &Rows::types, .reader = FieldReader::embedding},
                 {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples},
                 {.name = "targets", .view = &Rows::targets, .reader = FieldReader::head},
                 {.name = "loss weights", .view = &Rows::weights, .reader = FieldReader::head, .type = DType::f32},
                 {.name = "labels", .view = &Rows::labels, .reader = FieldReader::head, .shape = FieldShape::samples},
                 {.name = "position ids",
                  .view = &Rows::position_ids,
                  .reader = reads_ids,
                  .source = FieldSource::row_numbers},
                 {.name = "positions",
                  .view = &Rows::positions,
                  .shape = FieldShape::rows,
                  .source = FieldSource::row_numbers}},
      .sizes = {.rows = {config.model.sequence_length}, .samples = config.train.micro_batch_size}};
}

BertStage::BertStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
                     const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute, int chunk)
    : link_{Link{.width = model.hidden_size}} {
  ParameterBuilder builder(store, region);
  const ModelChunk place = chunk_at(model, parallel, grid, chunk);

  int word = kNone;
  if (place.first || (place.last && model.tie_embeddings)) word = declare_word_table(builder, model, grid);
  if (place.first) embedding_.emplace(builder, word, with_types(embedding_sizes(model)));
  blocks_.emplace(builder, block_sizes(model, Sight::all), place, recompute);
  if (place.last && !model.tie_embeddings) word = declare_head_table(builder, model);
  if (place.last) head_.emplace(builder, word, head_sizes(model));
}

Shape BertStage::activation_shape(const Context& context) const {
  return {context.region.local_sequence_length(context.rows().sequence), context.micro_batch.samples, link_[0].width};
}

std::unique_ptr<StageSaved> BertStage::make_saved() const {
  auto saved = std::make_unique<Saved>();
  saved->blocks = blocks_->make_saved();
  return saved;
}

ConstTensor BertStage::embed(Context& context, Saved& saved) const {
  const Tensor x = context.saved.allocate("embedding", activation_shape(context), context.activation_type);
  embedding_->forward(context, x, saved.embedding);
  return x;
}

void BertStage::forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const {
  verify(context.results == nullptr, ErrorKind::configuration,
         "a model of family \"bert\" predicts no next token: it cannot be scored");
  auto& saved = static_cast<Saved&>(stage_saved);
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->forward(context, x, last() ? Tensor() : out[0], saved.blocks);
  if (last()) head_->forward(context, y, saved.head);
}

void BertStage::infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                      Tensor logits) const {
  const ArenaScope kept(context.saved);
  Saved saved;
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->infer(context, x, last() ? Tensor() : out[0]);
  if (!last() || !logits) return;
  head_->logits(context, rows ? chosen_rows(context, y, rows) : y, logits);
}

void BertStage::backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ArenaScope scope(context.scratch);
  const Tensor dx =
      first() ? context.scratch.allocate("stage input gradient", activation_shape(context), context.activation_type)
              : din[0];
  if (last()) head_->backward(context, saved.head, dx);
  blocks_->backward(context, last() ? dx : dout[0], saved.blocks, dx);
  if (first()) embedding_->backward(context, dx, saved.embedding);
}

}  // namespace megatron
