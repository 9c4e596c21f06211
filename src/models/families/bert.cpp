#include "models/families/bert.h"

#include "models/families/layer_sizes.h"
#include "models/families/moe_terms.h"
#include "models/families/word_table.h"

namespace megatron {

namespace {

constexpr std::int64_t kTypes = 2;
enum Term { language_model, sentence_order };

EmbeddingSizes with_types(EmbeddingSizes sizes) {
  sizes.types = kTypes;
  return sizes;
}

BertHeadSizes bert_head_sizes(const ModelConfig& model) {
  return {.vocab = model.vocab_size,
          .norm = norm_sizes(model),
          .final_norm = model.norms() == NormPosition::pre,
          .activation = row_named(kActivations, model.activation).activation,
          .scale = head_scale(model),
          .chunks = model.head_chunks,
          .deviation = hidden_deviation(model),
          .output_deviation = output_deviation(model),
          .language_model_term = language_model,
          .sentence_order_term = sentence_order};
}

TaskHeadSizes task_head_sizes(const ModelConfig& model) {
  return {.norm = norm_sizes(model),
          .final_norm = model.norms() == NormPosition::pre,
          .classifier = {.name = "task_head",
                         .hidden = model.hidden_size,
                         .outputs = model.task_outputs,
                         .columns = model.task_choices,
                         .dropout = model.hidden_dropout,
                         .deviation = hidden_deviation(model),
                         .output_deviation = output_deviation(model)}};
}

bool ties_head(const ModelConfig& model) {
  return model.tie_embeddings && model.task_outputs == 0;
}

}  // namespace

struct BertStage::Saved final : StageSaved {
  Embedding::Saved embedding;
  BlockStack::Saved blocks;
  BertHead::Saved head;
  TaskHead::Saved task_head;
};

LossTerms bert_loss_terms(const Config& config) {
  if (config.task.given()) return with_moe_terms({{.name = config.task.name}}, config.model);
  LossTerms terms(2);
  terms[language_model].name = "language_model";
  terms[sentence_order].name = "sentence_order";
  return with_moe_terms(terms, config.model);
}

std::vector<std::vector<int>> bert_ties(const Config& config) {
  if (!ties_head(config.model)) return {};
  return word_table_ties(config);
}

BatchLayout bert_batch_layout(const Config& config) {
  const FieldReader reads_ids =
      config.model.positions() == PositionEmbedding::learned ? FieldReader::embedding : FieldReader::attention;
  BatchLayout layout{
      .fields = {{.name = "tokens", .view = &Rows::tokens, .reader = FieldReader::embedding},
                 {.name = "types", .view = &Rows::types, .reader = FieldReader::embedding},
                 {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples},
                 {.name = "targets", .view = &Rows::targets, .reader = FieldReader::head},
                 {.name = "loss weights", .view = &Rows::weights, .reader = FieldReader::head, .type = DType::f32},
                 {.name = "labels", .view = &Rows::labels, .reader = FieldReader::head, .shape = FieldShape::labels},
                 {.name = "position ids",
                  .view = &Rows::position_ids,
                  .reader = reads_ids,
                  .source = FieldSource::row_numbers},
                 {.name = "positions",
                  .view = &Rows::positions,
                  .shape = FieldShape::rows,
                  .source = FieldSource::row_numbers}},
      .sizes = {.rows = {config.model.sequence_length},
                .samples = config.train.micro_batch_size * config.model.task_choices,
                .columns = config.model.task_choices}};
  if (config.model.task_outputs > 0) layout = layout.without(&Rows::targets).without(&Rows::weights);
  return layout;
}

BertStage::BertStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
                     const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute, int chunk)
    : link_{Link{.width = model.hidden_size}} {
  ParameterBuilder builder(store, region), after_layers = builder.after_layers();
  const ModelChunk place = chunk_at(model, parallel, grid, chunk);

  const bool task = model.task_outputs > 0;
  ModelConfig tied = model;
  tied.tie_embeddings = ties_head(model);
  int word = kNone;
  if (place.first || (place.last && tied.tie_embeddings)) word = declare_word_table(builder, tied, grid);
  if (place.first) embedding_.emplace(builder, word, with_types(embedding_sizes(model)));
  const int own_terms = task ? 1 : 2;
  blocks_.emplace(builder, block_sizes(model, grid, Sight::all, own_terms), model.moe, place, recompute);
  if (place.last && !task && !model.tie_embeddings) word = declare_head_table(after_layers, model);
  if (place.last && !task) head_.emplace(after_layers, word, bert_head_sizes(model));
  if (place.last && task) task_head_.emplace(after_layers, task_head_sizes(model));
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
  const Tensor x = context.saved->allocate("embedding", activation_shape(context), context.pass.activation_type);
  embedding_->forward(context, x, saved.embedding);
  return x;
}

void BertStage::forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const {
  verify(context.results == nullptr || context.results->scores, ErrorKind::configuration,
         "a model of family \"bert\" predicts no next token: it cannot be scored");
  auto& saved = static_cast<Saved&>(stage_saved);
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->forward(context, x, last() ? Tensor() : out[0], saved.blocks);
  if (head_) head_->forward(context, y, saved.head);
  if (task_head_) task_head_->forward(context, y, saved.task_head);
}

void BertStage::infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                      Tensor logits) const {
  const ArenaScope kept(*context.saved);
  Saved saved;
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = blocks_->infer(context, x, last() ? Tensor() : out[0]);
  if (!last() || !logits) return;
  verify(head_.has_value(), ErrorKind::configuration,
         "a model that was fine-tuned for a task has its head instead of one for tokens: it has no logits of these");
  head_->logits(context, rows ? chosen_rows(context, y, rows) : y, logits);
}

void BertStage::backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ArenaScope scope(context.scratch);
  const Tensor dx = first() ? context.scratch.allocate("stage input gradient", activation_shape(context),
                                                       context.pass.activation_type)
                            : din[0];
  if (head_) head_->backward(context, saved.head, dx);
  if (task_head_) task_head_->backward(context, saved.task_head, dx);
  blocks_->backward(context, last() ? dx : dout[0], saved.blocks, dx);
  if (first()) embedding_->backward(context, dx, saved.embedding);
}

}  // namespace megatron
