// Rows of context ranks, which divide sequences: by every exchange, with every mask, bias and position of attention,
// every schedule, and what sums over them or knows them apart.
#include <string_view>

#include "config/rules/exchange_rules.h"
#include "parity/shared_options.h"
#include "parity/subjects.h"

namespace megatron::test {

namespace {

const std::vector<std::string> kTwoContext = {"parallel.context=2"}, kFourContext = {"parallel.context=4"};
const std::vector<std::string> kFull = {"recompute.mode=full"};
const std::vector<std::string> kSharedOut = {"optimizer.share=state"};
const std::vector<std::string> kFp16 = {"precision.compute=fp16", "precision.loss_scale=1024"};

std::vector<Row> context_of_decoders() {
  const std::vector<std::string> overlap = {"parallel.overlap_gradients=true"};
  const std::vector<std::string> normed = {"model.query_key_norm=true", "model.position_embedding=rope",
                                           "model.rotary_fraction=0.5", "model.query_groups=1",
                                           "model.activation=geglu"};
  const std::vector<std::string> window = {"model.attention_window=3", "model.position_embedding=rope",
                                           "model.head_size=10", "model.bias=query_key_value"};
  const std::vector<std::string> one_norm = {"model.residual=parallel_one_norm", "model.embedding_norm=true",
                                             "model.head_bias=true", "model.attention_softcap=5"};
  const std::vector<std::string> plain = {"model.hidden_dropout=0", "model.attention_dropout=0"};
  const std::string ramp_up = "train.batch_ramp_up={start=4, increment=4, samples=16}";
  return {
      {"context 2", 1, 1, 1, kTwoContext, {}, ""},
      {"context 4", 1, 1, 1, kFourContext, {}, ""},
      {"context 8", 1, 1, 1, {"parallel.context=8"}, {}, ""},
      {"context 2 without dropout", 1, 1, 1, kTwoContext, plain, ""},
      {"context 2, micro-batch 4", 1, 1, 1, with(kTwoContext, {"train.micro_batch_size=4"}), {}, ""},
      {"context 2, recompute", 1, 1, 1, with(kTwoContext, kFull), {}, "context 2"},
      {"context 4, data 2, overlap", 1, 2, 1, with(kFourContext, overlap), {}, ""},
      {"context 4, data 2, distributed", 1, 2, 1, with(kFourContext, kSharedOut), {}, "context 4, data 2, overlap"},
      {"context 2, distributed", 1, 1, 1, with(kTwoContext, kSharedOut), {}, "context 2"},
      {"context 2, tensor 2", 2, 1, 1, kTwoContext, {}, ""},
      {"context 2, tensor 2, sequence", 2, 1, 1, with(kTwoContext, kSequence), {}, ""},
      {"context 4, tensor 2, sequence", 2, 1, 1, with(kFourContext, kSequence), {}, ""},
      {"context 2, tensor 4, sequence", 4, 1, 1, with(kTwoContext, kSequence), {}, ""},
      {"context 2, 2 x 1 x 2", 2, 1, 2, with(kTwoContext, kSequence), {}, ""},
      {"context 2, 2 x 2 x 2", 2, 2, 2, with(kTwoContext, kSequence), {}, ""},
      {"context 2, pipeline 4", 1, 1, 4, kTwoContext, {}, ""},
      {"context 2, gpipe", 1, 1, 4, with(kTwoContext, {"parallel.schedule=gpipe"}), {}, "context 2, pipeline 4"},
      {"context 2, zero bubble", 1, 1, 4, with(kTwoContext, kZero), {}, "context 2, pipeline 4"},
      {"context 2, interleaved", 1, 1, 2, with(kTwoContext, kTwoChunks), {}, ""},
      {"context 2, interleaved, recompute",
       1,
       1,
       2,
       with(with(kTwoContext, kTwoChunks), kFull),
       {},
       "context 2, interleaved"},
      {"context 2, ramp-up", 1, 1, 2, kTwoContext, {ramp_up}, ""},
      {"context 2, bf16", 1, 1, 1, kTwoContext, kBf16, ""},
      {"context 2, bf16, sequence", 2, 1, 1, with(with(kTwoContext, kSequence), kBf16), {}, ""},
      {"context 4, bf16, distributed", 1, 1, 2, with(with(kFourContext, kSharedOut), kBf16), {}, ""},
      {"context 2, fp16", 2, 1, 1, with(kTwoContext, kFp16), {}, ""},
      {"context 2, Llama", 1, 1, 1, kTwoContext, kLlama, ""},
      {"context 4, Llama, sequence", 2, 1, 1, with(kFourContext, kSequence), kLlama, ""},
      {"context 2, Llama, shared keys", 4, 1, 1, with(kTwoContext, kSequence), kLlama, ""},
      {"context 2, ALiBi, one group", 1, 1, 1, kTwoContext, kOneGroup, ""},
      {"context 4, ALiBi, one group, zero bubble", 2, 1, 2, with(kFourContext, kZero), kOneGroup, ""},
      {"context 2, normed heads", 1, 1, 1, kTwoContext, normed, ""},
      {"context 4, normed heads, sequence", 2, 1, 1, with(kFourContext, kSequence), normed, ""},
      {"context 2, window", 1, 1, 1, kTwoContext, window, ""},
      {"context 4, window, recompute", 1, 1, 2, with(kFourContext, kFull), window, ""},
      {"context 2, soft cap", 2, 1, 1, with(kTwoContext, kSequence), one_norm, ""},
      {"context 2, sgd", 1, 2, 1, kTwoContext, {"optimizer.name=sgd", "learning_rate.peak=0.1"}, ""},
      {"context 2, muon", 2, 1, 1, with(kTwoContext, kSequence), kMuon, ""},
      {"context 2, muon, distributed", 2, 1, 1, with(with(kTwoContext, kSequence), kSharedOut), kMuon,
       "context 2, muon"},
      {"context 2, bf16 moments", 1, 1, 1, with(kTwoContext, kSharedOut), {"optimizer.moments_dtype=bf16"}, ""},
  };
}

std::vector<Row> context_of_data() {
  const std::string few = "model.vocab_size=10";
  const std::vector<std::string> all = {few, "data.reset_attention_mask=true", "data.reset_position_ids=true",
                                        "data.eod_mask_loss=true"};
  const std::vector<std::string> llama = with(all, kLlama), alibi = with(all, kOneGroup);
  const std::string curriculum = "train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}";
  const std::vector<std::string> packed = {few, "task.name=instructions"};
  const std::vector<std::string> keys = {"loss.name=key_tokens", "loss.token_ids=[1, 4, 9]", "loss.alpha=0.5", few};
  return {
      {"context 2, documents", 1, 1, 1, kTwoContext, all, ""},
      {"context 2, documents, micro-batch 3", 1, 1, 1, with(kTwoContext, {"train.micro_batch_size=3"}), all, ""},
      {"context 4, documents, sequence", 2, 1, 1, with(kFourContext, kSequence), all, ""},
      {"context 2, documents, Llama", 1, 1, 2, with(kTwoContext, {"train.micro_batch_size=2"}), llama, ""},
      {"context 2, documents, ALiBi", 2, 1, 1, with(kTwoContext, {"train.micro_batch_size=3"}), alibi, ""},
      {"context 2, document masks alone", 1, 1, 1, kTwoContext, {few, "data.reset_attention_mask=true"}, ""},
      {"context 2, document positions alone", 1, 1, 1, kTwoContext, {few, "data.reset_position_ids=true"}, ""},
      {"context 2, curriculum", 1, 1, 1, kTwoContext, {curriculum}, ""},
      {"context 2, documents, curriculum", 1, 1, 2, with(kTwoContext, {"train.micro_batch_size=3"}),
       with(all, {curriculum}), ""},
      {"context 2, instructions", 1, 1, 1, kTwoContext, packed, ""},
      {"context 8, instructions", 1, 1, 1, {"parallel.context=8"}, packed, ""},  // chunks of one row: some have no
                                                                                 // target
      {"context 4, instructions, bf16", 1, 1, 1, with(kFourContext, kBf16), packed, ""},
      {"context 2, key tokens", 1, 1, 1, with(kTwoContext, {"train.micro_batch_size=3"}), keys, ""},
  };
}

std::vector<Row> context_of_encoders() {
  const std::vector<std::string> pre = {"model.family=bert"};
  const std::vector<std::string> post = {"model.family=bert", "model.norm_position=post", "model.embedding_norm=true",
                                         "model.activation=gelu_exact"};
  const std::vector<std::string> labels = {"model.family=bert", "task.name=classification", "task.labels=3"};
  const std::vector<std::string> choices =
      with(post, {"task.name=multiple_choice", "task.choices=3", "model.tie_embeddings=false"});
  return {
      {"context 2, BERT", 1, 1, 1, kTwoContext, pre, ""},
      {"context 4, BERT, sequence", 2, 1, 1, with(kFourContext, kSequence), pre, ""},
      {"context 2, BERT, distributed", 1, 2, 2, with(kTwoContext, kSharedOut), pre, ""},
      {"context 2, BERT, zero bubble", 1, 1, 4, with(kTwoContext, kZero), pre, ""},
      {"context 2, BERT, bf16", 1, 1, 1, with(kTwoContext, kBf16), pre, ""},
      {"context 2, post-norm BERT, recompute", 1, 1, 2, with(kTwoContext, kFull), post, ""},
      {"context 2, labels", 1, 1, 1, kTwoContext, labels, ""},
      {"context 4, labels, sequence", 2, 1, 1, with(kFourContext, kSequence), labels, ""},
      {"context 2, choices", 1, 2, 1, kTwoContext, choices, ""},
  };
}

// Both streams are divided, each into its own chunks; cross-attention gathers the keys of the encoder by any exchange.
std::vector<Row> context_of_encoder_decoders() {
  const std::vector<std::string> megatron = {"model.family=t5", "model.layers=4", "model.decoder_sequence_length=8",
                                             "model.head_bias=true"};
  const std::vector<std::string> relative = {"model.family=t5",
                                             "model.layers=3",
                                             "model.decoder_layers=2",
                                             "model.decoder_sequence_length=24",
                                             "model.position_embedding=relative",
                                             "model.relative_buckets=8",
                                             "model.relative_max_distance=12",
                                             "model.normalization=rmsnorm",
                                             "model.bias=false",
                                             "model.scale_head=true"};
  return {
      {"context 2, T5", 1, 1, 1, kTwoContext, megatron, ""},
      {"context 4, T5, sequence", 2, 1, 1, with(kFourContext, kSequence),
       with(megatron, {"model.decoder_sequence_length=16"}), ""},
      {"context 2, T5, split at stage 1", 1, 2, 2, with(kTwoContext, {"parallel.split_stage=1"}), megatron, ""},
      {"context 2, T5, interleaved", 1, 1, 2, with(kTwoContext, kTwoChunks), megatron, ""},
      {"context 2, relative T5", 1, 1, 1, kTwoContext, relative, ""},
      {"context 4, relative T5", 1, 1, 1, kFourContext, relative, ""},
      {"context 2, relative T5, 2 x 2 x 1, distributed", 2, 2, 1, with(kTwoContext, with(kSequence, kSharedOut)),
       relative, ""},
      {"context 2, relative T5, recompute", 1, 1, 1, with(kTwoContext, kFull), relative, "context 2, relative T5"},
      {"context 2, relative T5, zero bubble", 1, 1, 4,
       with(kTwoContext, with(kZero, {"parallel.layers_per_stage=[1, 2, 1, 1]"})), relative, ""},
      {"context 2, relative T5, bf16", 1, 1, 1, with(kTwoContext, kBf16), relative, ""},
  };
}

std::string setting_of(std::string_view exchange) {
  return "parallel.context_exchange=" + std::string(exchange);
}

std::string name_with(std::string name, std::string_view exchange) {
  if (!name.empty()) name.append(", ").append(exchange);
  return name;
}

// Repeats rows by an exchange: as far as heads divide, and without dropout where a chunk has too few rows for it.
std::vector<Row> by_exchange(const std::vector<Row>& rows, const AttentionExchangeRow& exchange) {
  std::vector<Row> result;
  for (const Row& row : rows) {
    if (!exchange.fits(exchange_sizes(config_of(row)))) continue;
    const bool drops = exchange.rows_with_dropout == 1;
    const std::vector<std::string> without = {"model.attention_dropout=0"};
    result.push_back({name_with(row.name, exchange.name), row.tensor, row.data, row.pipeline,
                      with(row.how, {setting_of(exchange.name)}), drops ? row.trains : with(row.trains, without),
                      name_with(row.same_as, exchange.name)});
  }
  return result;
}

// Rows of "auto", and of chunks that are long enough for dropout in a ring.
std::vector<Row> context_of_exchanges() {
  const std::vector<std::string> ring = {setting_of("ring")}, few = {"model.vocab_size=10"};
  const std::vector<std::string> thirty_two = {"model.sequence_length=32"}, sixty_four = {"model.sequence_length=64"};
  const std::vector<std::string> documents = {"data.reset_attention_mask=true", "data.eod_mask_loss=true"};
  const std::vector<std::string> window = {"model.attention_window=13"};
  return {
      {"context 2, auto", 1, 1, 1, kTwoContext, {}, "context 2, ulysses"},
      {"context 8, auto", 1, 1, 1, {"parallel.context=8"}, {}, "context 8, gathered"},
      {"ring with dropout", 1, 1, 1, with(kTwoContext, ring), thirty_two, ""},
      {"ring with dropout, context 4", 2, 1, 1, with(with(kFourContext, kSequence), ring), sixty_four, ""},
      {"ring with dropout, ALiBi", 1, 1, 2, with(kTwoContext, ring), with(thirty_two, kOneGroup), ""},
      {"ring with dropout, window", 1, 1, 1, with(kFourContext, ring), with(sixty_four, window), ""},
      {"ring with dropout, documents", 1, 2, 1, with(kTwoContext, ring), with(with(thirty_two, few), documents), ""},
      {"ring with dropout, recompute", 1, 1, 1, with(with(kTwoContext, kFull), ring), thirty_two, "ring with dropout"},
      {"ring with dropout, bf16", 1, 1, 1, with(with(kTwoContext, kBf16), ring), thirty_two, ""},
      {"ring with dropout, BERT", 1, 1, 1, with(kTwoContext, ring), with(thirty_two, {"model.family=bert"}), ""},
  };
}

}  // namespace

std::vector<Row> context() {
  std::vector<Row> rows = context_of_exchanges();
  for (const auto& subject :
       {context_of_decoders(), context_of_data(), context_of_encoders(), context_of_encoder_decoders()}) {
    for (const AttentionExchangeRow& exchange : kAttentionExchanges) {
      for (Row& row : by_exchange(subject, exchange)) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace megatron::test
