#include "models/families/t5.h"

#include <algorithm>

#include "models/families/layer_sizes.h"
#include "models/families/word_table.h"

namespace megatron {

namespace {

BlockSizes stack_sizes(const ModelConfig& model, const ProcessGrid& grid, Sight sight, int distances) {
  BlockSizes sizes = block_sizes(model, grid, sight);
  sizes.attention.distance_table = distances;
  sizes.attention.distance_buckets = {.bidirectional = sight == Sight::all,
                                      .buckets = model.relative_buckets,
                                      .max_distance = model.relative_max_distance};
  sizes.cross_attention = sight == Sight::earlier;
  return sizes;
}

EmbeddingSizes stream_embedding(const ModelConfig& model, int position_table, ModelSite site, bool with_head) {
  EmbeddingSizes sizes = embedding_sizes(model);
  sizes.position_table = position_table;
  sizes.dropout_site = site;
  sizes.with_head = with_head;
  return sizes;
}

HeadSizes t5_head_sizes(const ModelConfig& model) {
  return {.vocab = model.vocab_size,
          .norm = norm_sizes(model),
          .bias = model.head_bias,
          .scale = head_scale(model),
          .chunks = model.head_chunks};
}

}  // namespace

struct T5Stage::Saved final : StageSaved {
  Embedding::Saved encoder_embedding, decoder_embedding;
  BlockStack::Saved encoder, decoder;
  Norm::Saved memory_norm;
  ConstTensor memory;
  Head::Saved head;
};

BatchLayout t5_batch_layout(const Config& config) {
  BatchLayout layout{.fields = {},
                     .sizes = {.rows = {config.model.decoder_sequence_length, config.model.sequence_length},
                               .samples = config.train.micro_batch_size}};
  const bool learned = config.model.positions() == PositionEmbedding::learned;
  for (const Stream stream : {Stream::main, Stream::encoder}) {
    const bool main = stream == Stream::main;
    layout.fields.push_back({.name = main ? "tokens" : "encoder tokens",
                             .view = &Rows::tokens,
                             .reader = FieldReader::embedding,
                             .stream = stream});
    if (learned) {
      layout.fields.push_back({.name = main ? "position ids" : "encoder position ids",
                               .view = &Rows::position_ids,
                               .reader = FieldReader::embedding,
                               .stream = stream,
                               .source = FieldSource::row_numbers});
    }
    layout.fields.push_back({.name = main ? "positions" : "encoder positions",
                             .view = &Rows::positions,
                             .stream = stream,
                             .shape = FieldShape::rows,
                             .source = FieldSource::row_numbers});
  }
  layout.fields.push_back(
      {.name = "encoder lengths", .view = &Rows::lengths, .stream = Stream::encoder, .shape = FieldShape::samples});
  layout.fields.push_back({.name = "targets", .view = &Rows::targets, .reader = FieldReader::head});
  layout.fields.push_back(
      {.name = "loss weights", .view = &Rows::weights, .reader = FieldReader::head, .type = DType::f32});
  return layout;
}

std::vector<std::unique_ptr<Stage>> make_t5_stages(const Config& config, const ProcessGrid& grid,
                                                   const TensorRegion& region, ParameterStore& store) {
  ParameterBuilder builder(store, region);
  const T5Tables tables = declare_t5_tables(builder, config, grid);
  std::vector<std::unique_ptr<Stage>> stages;
  for (int chunk = 0; chunk < config.parallel.virtual_stages; ++chunk) {
    stages.push_back(
        std::make_unique<T5Stage>(builder, config, grid, tables, chunk_at(config.model, config.parallel, grid, chunk)));
  }
  return stages;
}

T5Stage::T5Stage(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid, const T5Tables& tables,
                 const ModelChunk& chunk)
    : hidden_(config.model.hidden_size), store_(&builder.store()) {
  const std::int64_t split = config.model.layers, end = chunk.first_layer + chunk.layers;
  internal_check(chunk.layers > 0, "a chunk of an encoder-decoder without layers", chunk.layers);
  const Link main{.stream = Stream::main, .width = hidden_}, encoder{.stream = Stream::encoder, .width = hidden_};
  if (chunk.first_layer > split) receives_.push_back(main);
  if (!chunk.first) receives_.push_back(encoder);
  if (!chunk.last && end > split) sends_.push_back(main);
  if (!chunk.last) sends_.push_back(encoder);
  if (chunk.first_layer < split) declare_encoder(builder, config, grid, tables, chunk);
  if (end > split) declare_decoder(builder, config, grid, tables, chunk);
}

void T5Stage::declare_encoder(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid,
                              const T5Tables& tables, const ModelChunk& chunk) {
  const ModelConfig& model = config.model;
  const std::int64_t layers = std::min(chunk.layers, model.layers - chunk.first_layer);
  if (chunk.first) {
    encoder_embedding_.emplace(
        builder, tables.word,
        stream_embedding(model, tables.position, ModelSite::embedding, chunk.last && model.tie_embeddings));
  }
  encoder_.emplace(builder, stack_sizes(model, grid, Sight::all, tables.encoder_distances),
                   LayerSpan{.name = "encoder.layers",
                             .first_number = chunk.first_layer,
                             .first_layer = chunk.first_layer,
                             .layers = layers,
                             .recomputed = std::min(layers, config.recompute.of_chunk(chunk.layers)),
                             .parts = config.recompute.parts_made(),
                             .moe = &model.moe});
  if (chunk.first_layer + layers < model.layers) return;
  ParameterBuilder last_layer = builder.in_layer(model.layers - 1);
  Norm norm(last_layer, "encoder.final_norm", norm_sizes(model));
  memory_norm_.emplace(MemoryNorm{norm, static_cast<int>(store_->all().size()) - 1});
}

void T5Stage::declare_decoder(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid,
                              const T5Tables& tables, const ModelChunk& chunk) {
  const ModelConfig& model = config.model;
  const std::int64_t first = std::max(chunk.first_layer, model.layers), before = first - chunk.first_layer;
  if (first == model.layers) {
    decoder_embedding_.emplace(
        builder, tables.word,
        stream_embedding(model, tables.position, ModelSite::decoder_embedding, chunk.last && model.tie_embeddings));
  }
  decoder_.emplace(builder, stack_sizes(model, grid, Sight::earlier, tables.decoder_distances),
                   LayerSpan{.name = "decoder.layers",
                             .first_number = first - model.layers,
                             .first_layer = first,
                             .layers = chunk.layers - before,
                             .recomputed = std::max<std::int64_t>(0, config.recompute.of_chunk(chunk.layers) - before),
                             .parts = config.recompute.parts_made(),
                             .moe = &model.moe,
                             .expert_layers_before = model.moe.layers_among(model.layers)});
  if (!chunk.last) return;
  ParameterBuilder after_layers = builder.after_layers();
  head_.emplace(after_layers, model.tie_embeddings ? tables.word : declare_head_table(after_layers, model),
                t5_head_sizes(model));
}

bool T5Stage::reads(const BatchField& field) const {
  const bool main = field.stream == Stream::main;
  switch (field.reader) {
    case FieldReader::embedding: return (main ? decoder_embedding_ : encoder_embedding_).has_value();
    case FieldReader::attention: return !main || decoder_.has_value();
    case FieldReader::head: return head_.has_value();
  }
  fail(ErrorKind::internal, "a field that no layer reads");
}

Shape T5Stage::activation_shape(const Context& context) const {
  return {context.region.local_sequence_length(context.rows().sequence), context.micro_batch.samples, hidden_};
}

std::unique_ptr<StageSaved> T5Stage::make_saved() const {
  auto saved = std::make_unique<Saved>();
  if (encoder_) saved->encoder = encoder_->make_saved();
  if (decoder_) saved->decoder = decoder_->make_saved();
  return saved;
}

ConstTensor T5Stage::embed(Context& context, const Embedding& embedding, Embedding::Saved& saved) const {
  const Tensor x = context.saved->allocate("embedding", activation_shape(context), context.pass.activation_type);
  embedding.forward(context, x, saved);
  return x;
}

Tensor T5Stage::memory_in(Context& context, const StageData& out) const {
  if (!memory_norm_) return {};
  // Sent from where it is made, if it is.
  if (!out.empty()) return out.back();
  return context.saved->allocate("encoder output", activation_shape(context), context.pass.activation_type);
}

ConstTensor T5Stage::run_encoder(Context& main, const StageData& in, const StageData& out, Saved* saved) const {
  if (!encoder_) return in.back();
  Context context = main.on(Stream::encoder);
  context.cache = nullptr;  // it holds the decoder's tokens
  const Tensor memory = memory_in(context, out), end = memory_norm_ ? Tensor() : out[0];
  std::optional<ArenaScope> given_back;
  if (saved == nullptr) given_back.emplace(*context.saved);
  Saved unused;
  Saved& kept = saved != nullptr ? *saved : unused;
  const ConstTensor x = first() ? embed(context, *encoder_embedding_, kept.encoder_embedding) : ConstTensor(in[0]);
  const ConstTensor y =
      saved != nullptr ? encoder_->forward(context, x, end, kept.encoder) : encoder_->infer(context, x, end);
  if (!memory_norm_) return {};
  context.wait_for(store_->at(memory_norm_->last_parameter));
  memory_norm_->norm.forward(context, y, memory, kept.memory_norm);
  return memory;
}

void T5Stage::forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const {
  verify(context.results == nullptr, ErrorKind::configuration,
         "a model of family \"t5\" does not go through texts token by token: it cannot be scored");
  auto& saved = static_cast<Saved&>(stage_saved);
  saved.memory = run_encoder(context, in, out, &saved);
  if (!decoder_) return;
  context.memory.states = saved.memory;
  const ConstTensor x =
      decoder_embedding_ ? embed(context, *decoder_embedding_, saved.decoder_embedding) : ConstTensor(in[0]);
  const ConstTensor y = decoder_->forward(context, x, last() ? Tensor() : out[0], saved.decoder);
  if (last()) {
    head_->forward(context, y, saved.head);
  } else if (!memory_norm_) {
    context.ops.copy(saved.memory, out.back());
  }
}

KeyValueCache T5Stage::make_cache(Arena& arena, const CacheSizes& sizes, DType type) const {
  KeyValueCache cache;
  if (!decoder_) return cache;
  cache.first_layer = decoder_->blocks().front().layer();
  for (const Block& block : decoder_->blocks()) {
    cache.layers.push_back(block.attention().make_cache(arena, sizes.capacity, sizes.samples, type));
    cache.memory.push_back(block.cross_attention().make_cache(arena, sizes.encoder_rows, sizes.samples, type));
  }
  cache.memory_lengths = arena.allocate("lengths of the encoder's output", {sizes.samples}, DType::i32);
  return cache;
}

void T5Stage::infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                    Tensor logits) const {
  const ArenaScope kept(*context.saved);
  const bool decodes_alone = context.cache != nullptr;
  if (!decodes_alone) context.memory.states = run_encoder(context, in, out, nullptr);
  if (!decoder_) return;
  Embedding::Saved embedding;
  const ConstTensor x = decoder_embedding_ ? embed(context, *decoder_embedding_, embedding) : ConstTensor(in[0]);
  const ConstTensor y = decoder_->infer(context, x, last() ? Tensor() : out[0]);
  if (!decodes_alone && !last() && !memory_norm_) context.ops.copy(context.memory.states, out.back());
  if (!last() || !logits) return;
  head_->logits(context, rows ? chosen_rows(context, y, rows) : y, logits);
}

void T5Stage::encode(Context& context, const StageData& in, const StageData& out) const {
  const ArenaScope kept(*context.saved);
  context.memory.states = run_encoder(context, in, out, nullptr);
  if (!decoder_) return;
  for (const Block& block : decoder_->blocks()) block.cross_attention().fill_cache(context);
  if (!last() && !memory_norm_) context.ops.copy(context.memory.states, out.back());
}

void T5Stage::encode_back(Context& main, ConstTensor dy, const StageData& din, Saved& saved) const {
  Context context = main.on(Stream::encoder);
  const ArenaScope scope(context.scratch);
  const Tensor dx = first() ? context.scratch.allocate("stage input gradient", activation_shape(context),
                                                       context.pass.activation_type)
                            : din[0];
  if (memory_norm_) {
    memory_norm_->norm.backward(context, dy, saved.memory_norm, {}, dx);
    dy = dx;
  }
  encoder_->backward(context, dy, saved.encoder, dx);
  if (first()) encoder_embedding_->backward(context, dx, saved.encoder_embedding);
}

void T5Stage::decode_back(Context& context, const StageData& dout, const StageData& din, Tensor dmemory,
                          Saved& saved) const {
  const ArenaScope scope(context.scratch);
  context.memory = {.states = saved.memory, .gradient = dmemory};
  const Tensor dx = decoder_embedding_ ? context.scratch.allocate("stage input gradient", activation_shape(context),
                                                                  context.pass.activation_type)
                                       : din[0];
  if (last()) head_->backward(context, saved.head, dx);
  decoder_->backward(context, last() ? dx : dout[0], saved.decoder, dx);
  if (decoder_embedding_) decoder_embedding_->backward(context, dx, saved.decoder_embedding);
}

void T5Stage::backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const {
  auto& saved = static_cast<Saved&>(stage_saved);
  if (!decoder_) return encode_back(context, dout[0], din, saved);
  const ArenaScope scope(context.scratch);
  const Tensor dmemory = encoder_ ? context.scratch.allocate("gradient of the encoder's output", saved.memory.shape(),
                                                             context.pass.activation_type)
                                  : din.back();
  if (last()) {
    context.ops.fill(dmemory, 0);
  } else {
    context.ops.copy(dout.back(), dmemory);
  }
  decode_back(context, dout, din, dmemory, saved);
  if (encoder_) encode_back(context, dmemory, din, saved);
}

}  // namespace megatron
