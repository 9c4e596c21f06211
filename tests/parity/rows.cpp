#include "parity/rows.h"

#include <fmt/format.h>

#include "config/parse.h"
#include "config/resolve.h"
#include "config/unsupported.h"

namespace megatron::test {

namespace {

// Small and awkward: 8 layers give uneven stages and up to 4 chunks on 2 stages; 12 samples give micro-batches that are
// no multiple of the stages; the vocabulary is padded; dropout is on.
constexpr char kInput[] = R"(
[model]
layers = 8
hidden_size = 32
attention_heads = 4
sequence_length = 16
vocab_size = 50
vocab_multiple = 64

[train]
steps = 5
micro_batch_size = 1
global_batch_size = 12

[optimizer]
weight_decay = 0.1

[learning_rate]
peak = 1e-3
decay = "constant"

[data]
train = "made up by tests/support/tiny_training.h"
)";

std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

const std::vector<std::string> kTwoChunks = {"parallel.schedule=interleaved", "parallel.virtual_stages=2"};

// Each subject is a list of its own, so that a lever's rows stand together.
std::vector<Row> layouts() {
  return {
      // name, tensor, data, pipeline, how, trains, same as
      {"one rank", 1, 1, 1, {}, {}, ""},
      {"tensor 2", 2, 1, 1, {}, {}, ""},
      {"tensor 4", 4, 1, 1, {}, {}, ""},
      {"data 2", 1, 2, 1, {}, {}, ""},
      {"data 3", 1, 3, 1, {}, {}, ""},
      {"data 4", 1, 4, 1, {}, {}, ""},
      {"pipeline 2", 1, 1, 2, {}, {}, ""},
      {"pipeline 4", 1, 1, 4, {}, {}, ""},
      {"pipeline 8", 1, 1, 8, {}, {}, ""},
      {"2 x 2 x 2", 2, 2, 2, {}, {}, ""},
      {"micro-batch 2", 1, 1, 1, {"train.micro_batch_size=2"}, {}, ""},
      {"micro-batch 3", 1, 1, 1, {"train.micro_batch_size=3"}, {}, ""},
      {"micro-batch 12", 1, 1, 1, {"train.micro_batch_size=12"}, {}, ""},
      {"2 x 2 x 2, micro-batch 3", 2, 2, 2, {"train.micro_batch_size=3"}, {}, ""},
      {"fewer micro-batches than stages", 1, 2, 4, {"train.micro_batch_size=3"}, {}, ""},
      {"uneven stages", 1, 1, 2, {"parallel.layers_per_stage=[1, 7]"}, {}, ""},
      {"uneven stages, pipeline 4", 1, 1, 4, {"parallel.layers_per_stage=[1, 3, 3, 1]"}, {}, ""},
  };
}

std::vector<Row> sequence_parallel() {
  return {
      {"sequence", 2, 1, 1, {"parallel.sequence_parallel=true", "train.micro_batch_size=2"}, {}, ""},
      {"sequence, tensor 4", 4, 1, 2, {"parallel.sequence_parallel=true"}, {}, ""},
      {"sequence, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, {}, ""},
  };
}

std::vector<Row> precision() {
  // 16-bit values and activations, against fp32's one rank by the bands; among themselves bit for bit, as in fp32. A
  // loss scale that is a power of two changes no bit of fp32.
  const std::vector<std::string> bf16 = {"precision.compute=bf16"};
  const std::vector<std::string> fp16 = {"precision.compute=fp16", "precision.loss_scale=4096"};
  const std::vector<std::string> bf16_sequence = with(bf16, {"parallel.sequence_parallel=true"});
  return {
      {"bf16", 1, 1, 1, bf16, {}, ""},
      {"bf16, micro-batch 3", 1, 1, 1, with(bf16, {"train.micro_batch_size=3"}), {}, ""},
      {"loss scale", 1, 1, 1, {"precision.loss_scale=65536"}, {}, "one rank"},
      {"fp16", 1, 1, 1, fp16, {}, ""},
      {"fp16, sequence, 2 x 2 x 2", 2, 2, 2, with(fp16, {"parallel.sequence_parallel=true"}), {}, ""},
      {"fp16, interleaved, distributed", 1, 2, 4, with(with(fp16, kTwoChunks), {"optimizer.distributed=true"}), {}, ""},
      {"bf16, sequence, 2 x 2 x 1", 2, 2, 1, bf16_sequence, {}, ""},
      {"bf16, 2 x 2 x 2", 2, 2, 2, bf16, {}, ""},
      {"bf16, sequence, 2 x 2 x 2", 2, 2, 2, bf16_sequence, {}, ""},
      {"bf16, sequence, gpipe",
       2,
       2,
       2,
       with(bf16_sequence, {"parallel.schedule=gpipe"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, sequence, zero bubble",
       2,
       2,
       2,
       with(bf16_sequence, {"parallel.schedule=zero_bubble"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, sequence, recompute",
       2,
       2,
       2,
       with(bf16_sequence, {"recompute.mode=full"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, sequence, distributed",
       2,
       2,
       2,
       with(bf16_sequence, {"optimizer.distributed=true", "parallel.overlap_gradients=true"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, interleaved", 1, 2, 4, with(bf16, kTwoChunks), {}, ""},
      {"bf16, interleaved, distributed",
       1,
       2,
       4,
       with(with(bf16, kTwoChunks), {"optimizer.distributed=true"}),
       {},
       "bf16, interleaved"},
      {"bf16, curriculum",
       2,
       2,
       1,
       bf16_sequence,
       {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"},
       ""},
  };
}

std::vector<Row> schedules() {
  return {
      {"gpipe", 1, 1, 2, {"parallel.schedule=gpipe"}, {}, "pipeline 2"},
      {"gpipe, pipeline 4", 1, 1, 4, {"parallel.schedule=gpipe"}, {}, "pipeline 4"},
      {"gpipe, 2 x 2 x 2", 2, 2, 2, {"parallel.schedule=gpipe"}, {}, "2 x 2 x 2"},
      {"interleaved", 1, 1, 2, kTwoChunks, {}, ""},
      {"interleaved, 4 chunks", 1, 1, 2, {"parallel.schedule=interleaved", "parallel.virtual_stages=4"}, {}, ""},
      {"interleaved, pipeline 4", 1, 1, 4, kTwoChunks, {}, ""},
      {"interleaved, 6 micro-batches on 4 stages", 1, 2, 4, kTwoChunks, {}, ""},
      {"interleaved, 3 micro-batches on 4 stages", 1, 2, 4, with(kTwoChunks, {"train.micro_batch_size=2"}), {}, ""},
      {"interleaved, sequence", 2, 2, 2, with(kTwoChunks, {"parallel.sequence_parallel=true"}), {}, ""},
      {"interleaved, uneven", 1, 1, 2, with(kTwoChunks, {"parallel.layers_per_stage=[1, 3, 3, 1]"}), {}, ""},
  };
}

std::vector<Row> zero_bubble() {
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"};
  const std::vector<std::string> no_dropout = {"model.hidden_dropout=0", "model.attention_dropout=0"};
  return {
      {"zero bubble", 1, 1, 2, zero, {}, "pipeline 2"},
      {"zero bubble, pipeline 4", 1, 1, 4, zero, {}, "pipeline 4"},
      {"zero bubble, 2 x 2 x 2", 2, 2, 2, zero, {}, "2 x 2 x 2"},
      {"zero bubble, sequence", 2, 2, 2, with(zero, {"parallel.sequence_parallel=true"}), {}, "sequence, 2 x 2 x 2"},
      {"zero bubble, overlap", 2, 2, 2, with(zero, {"parallel.overlap_gradients=true"}), {}, "2 x 2 x 2"},
      {"zero bubble, recompute 1 of 2",
       1,
       1,
       4,
       with(zero, {"recompute.mode=full", "recompute.layers=1"}),
       {},
       "pipeline 4"},
      {"pipeline 2, no dropout", 1, 1, 2, {}, no_dropout, ""},
      {"zero bubble, no dropout", 1, 1, 2, zero, no_dropout, "pipeline 2, no dropout"},
      {"zero bubble, fewer micro-batches than stages",
       1,
       2,
       4,
       with(zero, {"train.micro_batch_size=3"}),
       {},
       "fewer micro-batches than stages"},
  };
}

std::vector<Row> variants() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> shared_out = {"optimizer.distributed=true", "parallel.overlap_gradients=true"};
  const std::vector<std::string> two_groups = {"model.query_groups=2"};
  const std::vector<std::string> one_group = {"model.query_groups=1", "model.position_embedding=alibi"};
  const std::vector<std::string> untied = {"model.tie_embeddings=false"};
  const std::vector<std::string> plain = {"model.bias=false", "model.position_embedding=none"};
  const std::vector<std::string> llama = {"model.position_embedding=rope", "model.normalization=rmsnorm",
                                          "model.activation=swiglu",       "model.bias=false",
                                          "model.tie_embeddings=false",    "model.query_groups=2"};
  const std::vector<std::string> query_key_norm = {
      "model.position_embedding=rope", "model.rotary_fraction=0.5", "model.query_key_norm=true",
      "model.query_groups=1",          "model.activation=geglu",    "model.rotary_scaling={type=\"linear\", factor=2}"};
  const std::vector<std::string> exact = {"model.activation=gelu_exact"}, relu = {"model.activation=relu"};
  return {
      {"Llama, tensor 4", 4, 1, 1, {}, llama, ""},
      {"Llama, micro-batch 3", 1, 1, 1, with(full, {"train.micro_batch_size=3"}), llama, ""},
      {"Llama, 4 x 1 x 2", 4, 1, 2, sequence, llama, ""},
      {"Llama, zero bubble", 4, 1, 2, with(sequence, zero), llama, "Llama, 4 x 1 x 2"},
      {"Llama, recompute", 4, 1, 2, with(sequence, full), llama, "Llama, 4 x 1 x 2"},
      {"Llama, 2 x 2 x 2", 2, 2, 2, sequence, llama, ""},
      {"Llama, distributed", 2, 2, 2, with(sequence, shared_out), llama, "Llama, 2 x 2 x 2"},
      {"Llama, interleaved", 2, 1, 2, with(sequence, kTwoChunks), llama, ""},
      {"Llama, bf16", 2, 2, 2, with(sequence, {"precision.compute=bf16"}), llama, ""},
      {"Llama, curriculum", 2, 2, 1, sequence,
       with(llama, {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"}), ""},
      {"query and key norms, 2 x 1 x 2", 2, 1, 2, {}, query_key_norm, ""},
      {"query and key norms, zero bubble", 2, 1, 2, zero, query_key_norm, "query and key norms, 2 x 1 x 2"},
      {"query and key norms, 4 x 2 x 1", 4, 2, 1, with(sequence, shared_out), query_key_norm, ""},
      {"query and key norms, recompute", 4, 2, 1, with(sequence, full), query_key_norm, ""},
      {"exact gelu", 2, 1, 2, zero, exact, ""},
      {"relu", 2, 1, 2, zero, relu, ""},
      {"two groups", 2, 1, 1, {}, two_groups, ""},
      {"two groups, tensor 4", 4, 1, 1, {}, two_groups, ""},
      {"two groups, 4 x 2 x 1", 4, 2, 1, sequence, two_groups, ""},
      {"two groups, distributed", 4, 2, 1, with(sequence, shared_out), two_groups, "two groups, 4 x 2 x 1"},
      {"two groups, pipeline", 4, 1, 2, sequence, two_groups, ""},
      {"two groups, zero bubble", 4, 1, 2, with(sequence, zero), two_groups, "two groups, pipeline"},
      {"two groups, bf16", 4, 1, 2, with(sequence, {"precision.compute=bf16"}), two_groups, ""},
      {"one group, 2 x 2 x 2", 2, 2, 2, {}, one_group, ""},
      {"one group, distributed, recompute", 2, 2, 2, with(full, shared_out), one_group, "one group, 2 x 2 x 2"},
      {"one group, interleaved", 2, 1, 2, with(sequence, kTwoChunks), one_group, ""},
      {"untied", 1, 1, 1, full, untied, ""},
      {"untied, pipeline", 1, 1, 4, {}, untied, ""},
      {"untied, zero bubble", 1, 1, 4, zero, untied, "untied, pipeline"},
      {"untied, interleaved", 1, 2, 2, with(kTwoChunks, shared_out), untied, ""},
      {"untied, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), untied, ""},
      {"no biases, no positions, 2 x 2 x 2", 2, 2, 2, sequence, plain, ""},
      {"no biases, no positions, zero bubble", 2, 2, 2, with(sequence, zero), plain,
       "no biases, no positions, 2 x 2 x 2"},
      {"no biases, no positions, recompute", 2, 2, 2, with(sequence, full), plain,
       "no biases, no positions, 2 x 2 x 2"},
  };
}

std::vector<Row> gradient_sums() {
  return {
      {"overlap", 1, 2, 1, {"parallel.overlap_gradients=true"}, {}, "data 2"},
      {"overlap, 2 x 2 x 2", 2, 2, 2, {"parallel.overlap_gradients=true"}, {}, "2 x 2 x 2"},
      {"overlap, interleaved",
       1,
       2,
       4,
       with(kTwoChunks, {"parallel.overlap_gradients=true"}),
       {},
       "interleaved, 6 micro-batches on 4 stages"},
  };
}

std::vector<Row> distributed() {
  // Reductions are in rank order whoever keeps the sum: the same bits.
  return {
      {"distributed", 1, 2, 1, {"optimizer.distributed=true"}, {}, "data 2"},
      {"distributed, data 3", 1, 3, 1, {"optimizer.distributed=true"}, {}, "data 3"},
      {"distributed, data 4", 1, 4, 1, {"optimizer.distributed=true"}, {}, "data 4"},
      {"distributed, one rank", 1, 1, 1, {"optimizer.distributed=true"}, {}, "one rank"},
      {"distributed, overlap",
       1,
       2,
       1,
       {"optimizer.distributed=true", "parallel.overlap_gradients=true"},
       {},
       "data 2"},
      {"data 2, pipeline 3", 1, 2, 3, {"parallel.layers_per_stage=[3, 3, 2]"}, {}, ""},
      {"distributed, data 2, pipeline 3",
       1,
       2,
       3,
       {"optimizer.distributed=true", "parallel.layers_per_stage=[3, 3, 2]"},
       {},
       "data 2, pipeline 3"},
      {"distributed, 2 x 2 x 2", 2, 2, 2, {"optimizer.distributed=true"}, {}, "2 x 2 x 2"},
      {"distributed, sequence, 2 x 2 x 2",
       2,
       2,
       2,
       {"optimizer.distributed=true", "parallel.sequence_parallel=true"},
       {},
       "sequence, 2 x 2 x 2"},
      {"distributed, interleaved, sequence",
       2,
       2,
       2,
       with(kTwoChunks,
            {"parallel.sequence_parallel=true", "optimizer.distributed=true", "parallel.overlap_gradients=true"}),
       {},
       "interleaved, sequence"},
  };
}

std::vector<Row> rules() {
  const std::vector<std::string> sgd = {"optimizer.name=sgd", "learning_rate.peak=0.1"};
  return {
      {"sgd, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, sgd, ""},
      {"sgd, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.distributed=true"},
       sgd,
       "sgd, 2 x 2 x 2"},
      {"sgd without momentum", 1, 4, 1, {"optimizer.distributed=true"}, with(sgd, {"optimizer.momentum=0"}), ""},
  };
}

std::vector<Row> recomputation() {
  return {
      {"recompute", 1, 1, 1, {"recompute.mode=full"}, {}, "one rank"},
      {"recompute 3 layers", 1, 1, 1, {"recompute.mode=full", "recompute.layers=3"}, {}, "one rank"},
      {"selective", 1, 1, 1, {"recompute.mode=selective"}, {}, "one rank"},
      {"recompute, tensor 2", 2, 1, 1, {"recompute.mode=full"}, {}, "tensor 2"},
      {"recompute, sequence, 2 x 2 x 2",
       2,
       2,
       2,
       {"recompute.mode=full", "recompute.layers=2", "parallel.sequence_parallel=true"},
       {},
       "sequence, 2 x 2 x 2"},
      {"recompute, gpipe", 1, 1, 4, {"recompute.mode=full", "parallel.schedule=gpipe"}, {}, "pipeline 4"},
      {"recompute more than a stage has",
       1,
       1,
       2,
       {"recompute.mode=full", "recompute.layers=3", "parallel.layers_per_stage=[1, 7]"},
       {},
       "uneven stages"},
      {"recompute, overlap", 1, 2, 1, {"recompute.mode=full", "parallel.overlap_gradients=true"}, {}, "data 2"},
  };
}

std::vector<Row> batches() {
  // Batches of 4, 4, 8, 12 and 12 samples.
  const std::string ramp_up = "train.batch_ramp_up={start=4, increment=4, samples=16}";
  return {
      {"ramp-up, data 4", 1, 4, 1, {}, {ramp_up}, ""},
      {"ramp-up, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, {ramp_up}, ""},
      {"ramp-up, fewer micro-batches than stages", 1, 1, 8, {"train.micro_batch_size=2"}, {ramp_up}, ""},
      {"ramp-up, gpipe",
       1,
       1,
       8,
       {"train.micro_batch_size=2", "parallel.schedule=gpipe"},
       {ramp_up},
       "ramp-up, fewer micro-batches than stages"},
      {"ramp-up, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, {ramp_up}, ""},
      {"ramp-up, interleaved", 1, 2, 4, kTwoChunks, {ramp_up}, ""},
  };
}

std::vector<Row> sequences() {
  // 4, 8, 12, 16 and 16 tokens.
  const std::string curriculum = "train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}";
  const std::string uneven = "train.curriculum={schedule=\"fixed_discrete\", lengths=[3, 10, 16], until=[2, 3]}";
  return {
      {"curriculum, data 2", 1, 2, 1, {"train.micro_batch_size=2"}, {curriculum}, ""},
      {"curriculum, sequence", 4, 1, 1, {"parallel.sequence_parallel=true"}, {curriculum}, ""},
      {"curriculum, interleaved", 1, 1, 4, kTwoChunks, {curriculum}, ""},
      {"curriculum, recompute, 2 x 2 x 2", 2, 2, 2, {"recompute.mode=full"}, {curriculum}, ""},
      {"uneven lengths, 2 x 2 x 2", 2, 2, 2, {"train.micro_batch_size=3"}, {uneven}, ""},
  };
}

std::vector<Row> documents() {
  // One token in ten ends a document: masks are uneven over samples, micro-batches and data ranks.
  const std::string few = "model.vocab_size=10";
  const std::vector<std::string> all = {few, "data.reset_attention_mask=true", "data.reset_position_ids=true",
                                        "data.eod_mask_loss=true"};
  const std::string curriculum = "train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}";
  return {
      {"documents", 1, 1, 1, {}, all, ""},
      {"documents, recompute", 1, 1, 1, {"recompute.mode=full"}, all, "documents"},
      {"documents, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, all, ""},
      {"documents, tensor 4", 4, 1, 1, {"parallel.sequence_parallel=true"}, all, ""},
      {"documents, data 3", 1, 3, 1, {"train.micro_batch_size=2", "optimizer.distributed=true"}, all, ""},
      {"documents, pipeline 8", 1, 1, 8, {}, all, ""},
      {"documents, gpipe", 1, 1, 8, {"parallel.schedule=gpipe"}, all, "documents, pipeline 8"},
      {"documents, 2 x 2 x 2", 2, 2, 2, {"train.micro_batch_size=3", "parallel.sequence_parallel=true"}, all, ""},
      {"documents, zero bubble",
       2,
       2,
       2,
       {"train.micro_batch_size=3", "parallel.sequence_parallel=true", "parallel.schedule=zero_bubble"},
       all,
       "documents, 2 x 2 x 2"},
      {"documents, interleaved", 1, 2, 4, with(kTwoChunks, {"recompute.mode=full"}), all, ""},
      {"documents, curriculum", 2, 1, 2, {"train.micro_batch_size=3"}, with(all, {curriculum}), ""},
      {"documents, bf16", 2, 2, 1, {"precision.compute=bf16"}, all, ""},
      {"document masks alone", 1, 1, 4, {}, {few, "data.reset_attention_mask=true"}, ""},
      {"document positions alone", 2, 2, 1, {}, {few, "data.reset_position_ids=true"}, ""},
      {"masked losses alone", 1, 2, 2, {"train.micro_batch_size=2"}, {few, "data.eod_mask_loss=true"}, ""},
  };
}

std::vector<Row> losses() {
  const std::vector<std::string> keys = {"loss.name=key_tokens", "loss.token_ids=[1, 4, 9]", "loss.alpha=0.5",
                                         "model.vocab_size=10"};
  const std::vector<std::string> masked = with(keys, {"data.eod_mask_loss=true"});
  return {
      {"key tokens", 1, 1, 1, {"train.micro_batch_size=3"}, keys, ""},
      {"key tokens, recompute", 1, 1, 1, {"train.micro_batch_size=3", "recompute.mode=full"}, keys, "key tokens"},
      {"key tokens, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, keys, ""},
      {"key tokens, fp16", 2, 1, 1, {"precision.compute=fp16", "precision.loss_scale=1024"}, keys, ""},
      {"key tokens, masked, data 3", 1, 3, 1, {"train.micro_batch_size=2"}, masked, ""},
      {"key tokens, masked, interleaved", 1, 2, 4, kTwoChunks, masked, ""},
  };
}

}  // namespace

Config config_of(const Row& row) {
  std::vector<std::string> settings = with(row.trains, row.how);
  settings.push_back(fmt::format("parallel.tensor={}", row.tensor));
  settings.push_back(fmt::format("parallel.data={}", row.data));
  settings.push_back(fmt::format("parallel.pipeline={}", row.pipeline));
  Config config = parse_config_text(kInput, "the input of the parity test", settings);
  refuse_what_is_to_come(config);
  resolve(config, row.tensor * row.data * row.pipeline, nullptr);
  return config;
}

std::vector<Row> parity_rows() {
  std::vector<Row> rows;
  for (const auto& subject : {layouts, sequence_parallel, schedules, zero_bubble, gradient_sums, distributed, rules,
                              recomputation, batches, sequences, documents, losses, precision, variants}) {
    for (Row& row : subject()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace megatron::test
