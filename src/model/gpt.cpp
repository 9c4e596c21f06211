#include "model/gpt.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "model/rotary.h"

namespace megatron {

struct GptStage::Saved final : StageSaved {
  Embedding::Saved embedding;
  std::vector<Block::Saved> blocks;
  Head::Saved head;
};

namespace {

NormSizes norm_sizes(const ModelConfig& model) {
  return {.hidden = model.hidden_size,
          .kind = row_named(kNormalizations, model.normalization).kind,
          .epsilon = model.norm_epsilon};
}

Residual residual_of(const ModelConfig& model) {
  return model.residual == "parallel"            ? Residual::parallel
         : model.residual == "parallel_one_norm" ? Residual::parallel_one_norm
                                                 : Residual::sequential;
}

BlockSizes block_sizes(const ModelConfig& model) {
  // Outputs that add to the residual stream start smaller, by the number of them (Radford et al. 2019).
  const double output_deviation = model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
  BlockSizes sizes;
  sizes.attention = {.hidden = model.hidden_size,
                     .heads = model.attention_heads,
                     .groups = model.query_groups,
                     .head_size = model.head_size(),
                     .bias = model.bias.query_key_value,
                     .output_bias = model.bias.attention_output,
                     .window = model.attention_window,
                     .alibi = model.position_embedding == "alibi",
                     .inverse_frequencies =
                         model.position_embedding == "rope" ? rotary_inverse_frequencies(model) : std::vector<float>(),
                     .query_key_norm = model.query_key_norm,
                     .norm_epsilon = model.norm_epsilon,
                     .dropout = model.attention_dropout,
                     .deviation = model.init_std,
                     .output_deviation = output_deviation};
  sizes.mlp = {.hidden = model.hidden_size,
               .ffn = model.ffn_hidden_size,
               .bias = model.bias.feed_forward,
               .activation = row_named(kActivations, model.activation).activation,
               .deviation = model.init_std,
               .output_deviation = output_deviation};
  sizes.norm = norm_sizes(model);
  sizes.residual = residual_of(model);
  sizes.hidden_dropout = model.hidden_dropout;
  return sizes;
}

EmbeddingSizes embedding_sizes(const ModelConfig& model) {
  EmbeddingSizes sizes{.padded_vocab = model.padded_vocab(),
                       .hidden = model.hidden_size,
                       .positions = model.position_embedding == "learned" ? model.max_position_embeddings : 0,
                       .dropout = model.hidden_dropout,
                       .deviation = model.init_std};
  if (model.scale_embeddings) sizes.scale = std::sqrt(static_cast<double>(model.hidden_size));
  if (model.embedding_norm) sizes.norm = norm_sizes(model);
  return sizes;
}

int declare_table(ParameterBuilder& builder, const std::string& name, const ModelConfig& model) {
  return builder.column_parallel_weight(name, model.padded_vocab(), model.hidden_size, model.init_std);
}

constexpr int kWordTie = 0;

// A tied word table is used by the first chunk (look-up) and by the last (head). Where these are on different ranks it
// is one parameter in two copies: the first chunk's counts, the gradients of both are summed.
int declare_word_table(ParameterBuilder& builder, const ModelConfig& model, const ProcessGrid& grid) {
  const int word = declare_table(builder, "embedding.word.weight", model);
  if (model.tie_embeddings && grid.shape().pipeline > 1) {
    builder.store().mark_tied(word, kWordTie, /*owner=*/grid.tie(kWordTie).rank() == 0);
  }
  return word;
}

}  // namespace

std::vector<std::vector<int>> GptStage::ties(const Config& config) {
  const int stages = static_cast<int>(config.parallel.pipeline);
  if (!config.model.tie_embeddings || stages == 1) return {};
  return {{0, stages - 1}};
}

BatchLayout gpt_batch_layout(const Config& config) {
  const FieldReader reads_ids =
      config.model.position_embedding == "learned" ? FieldReader::embedding : FieldReader::attention;
  const FieldSource ids = config.data.reset_position_ids ? FieldSource::sample : FieldSource::row_numbers;
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
  if (config.data.reset_attention_mask) {
    layout.fields.push_back(
        {.name = "document starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows});
  }
  return layout;
}

GptStage::GptStage(const ModelConfig& model, const ParallelConfig& parallel, const ProcessGrid& grid,
                   const TensorRegion& region, ParameterStore& store, const RecomputeConfig& recompute, int chunk)
    : link_{Link{.width = model.hidden_size}}, region_(region) {
  ParameterBuilder builder(store, region);
  const std::vector<std::int64_t> split = layers_per_chunk(model, parallel);
  const auto at = static_cast<std::size_t>(chunk * grid.shape().pipeline + grid.at().pipeline);
  const auto own = split.begin() + static_cast<std::ptrdiff_t>(at);
  const bool first = at == 0, last = at + 1 == split.size();
  const std::int64_t first_layer = std::accumulate(split.begin(), own, std::int64_t{0});

  int word = kNone;
  if (first || (last && model.tie_embeddings)) word = declare_word_table(builder, model, grid);
  if (first) embedding_.emplace(builder, word, embedding_sizes(model));
  blocks_.reserve(static_cast<std::size_t>(*own));
  const std::int64_t recomputed = recompute.of_chunk(*own);
  for (std::int64_t layer = first_layer; layer < first_layer + *own; ++layer) {
    blocks_.emplace_back(builder, "layers." + std::to_string(layer), block_sizes(model), layer,
                         layer - first_layer < recomputed);
  }
  if (last && !model.tie_embeddings) word = declare_table(builder, "head.weight", model);
  if (last) head_.emplace(builder, word, HeadSizes{model.vocab_size, norm_sizes(model), model.head_bias});
}

Shape GptStage::activation_shape(const Context& context) const {
  return {region_.local_sequence_length(context.rows().sequence), context.micro_batch.samples, link_[0].width};
}

std::unique_ptr<StageSaved> GptStage::make_saved() const {
  auto saved = std::make_unique<Saved>();
  saved->blocks.resize(blocks_.size());
  return saved;
}

ConstTensor GptStage::embed(Context& context, Saved& saved) const {
  const Shape shape = activation_shape(context);
  const Tensor x = context.saved.allocate("embedding", shape, context.activation_type);
  embedding_->forward(context, x, saved.embedding);
  return x;
}

ConstTensor GptStage::run_blocks(Context& context, ConstTensor x, Tensor out, Saved& saved) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const bool to_out = !out.empty() && i + 1 == blocks_.size();
    const Tensor y = to_out ? out : context.saved.allocate("block output", x.shape(), context.activation_type);
    blocks_[i].forward(context, x, y, saved.blocks[i]);
    x = y;
  }
  if (blocks_.empty() && !out.empty()) context.ops.copy(x, out);
  return x;
}

void GptStage::forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const ConstTensor y = run_blocks(context, x, last() ? Tensor() : out[0], saved);
  if (last()) head_->forward(context, y, saved.head);
}

void GptStage::backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  const ArenaScope scope(context.scratch);
  const Shape shape = activation_shape(context);
  const Tensor dx = first() ? context.scratch.allocate("stage input gradient", shape, context.activation_type) : din[0];
  ConstTensor dy = last() ? dx : dout[0];
  if (last()) head_->backward(context, saved.head, dx);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward(context, dy, saved.blocks[i], dx);
    dy = dx;
  }
  if (blocks_.empty() && !last()) context.ops.copy(dy, dx);
  if (first()) embedding_->backward(context, dx, saved.embedding);
}

KeyValueCache GptStage::make_cache(Arena& arena, std::int64_t capacity, std::int64_t samples, DType type) const {
  KeyValueCache cache;
  if (!blocks_.empty()) cache.first_layer = blocks_.front().layer();
  for (const Block& block : blocks_) {
    cache.layers.push_back(block.attention().make_cache(arena, capacity, samples, type));
  }
  return cache;
}

void GptStage::infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                     Tensor logits) const {
  const ArenaScope kept(context.saved);
  Saved saved;
  saved.blocks.resize(blocks_.size());
  ConstTensor x = first() ? embed(context, saved) : ConstTensor(in[0]);
  const auto allocate = [&] { return context.saved.allocate("block output", x.shape(), context.activation_type); };
  const std::array<Tensor, 2> outputs = {allocate(), allocate()};  // a block reads one and writes the other
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor y = !last() && i + 1 == blocks_.size() ? out[0] : outputs[i % 2];
    const ArenaScope of_block(context.saved);
    blocks_[i].forward(context, x, y, saved.blocks[i]);
    x = y;
  }
  if (!last()) {
    if (blocks_.empty()) context.ops.copy(x, out[0]);
    return;
  }
  if (!logits) return;
  if (rows) {
    const Tensor chosen =
        context.saved.allocate("rows of the head", {1, rows.elements(), link_[0].width}, context.activation_type);
    context.ops.embedding_forward({.ids = rows, .weight = as_matrix(x), .y = as_matrix(chosen)});
    x = chosen;
  }
  head_->logits(context, x, logits);
}

}  // namespace megatron
