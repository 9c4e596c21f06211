// Rows of heads whose logits are computed in chunks of rows, with gradients made in the forward: on every way to lay
// out and to play a run, and with everything that a loss of tokens can have.
#include "parity/subjects.h"

namespace megatron::test {

namespace {

// 16 rows of a micro-batch: halves, parts of 5 and 6 rows, single rows.
const std::vector<std::string> kTwo = {"model.head_chunks=2"}, kThree = {"model.head_chunks=3"},
                               kMany = {"model.head_chunks=100"};
const std::vector<std::string> kSequence = {"parallel.sequence_parallel=true"};
const std::vector<std::string> kZero = {"parallel.schedule=zero_bubble"}, kGpipe = {"parallel.schedule=gpipe"};
const std::vector<std::string> kShards = {"optimizer.share=state", "parallel.overlap_gradients=true"};
const std::vector<std::string> kBf16 = {"precision.compute=bf16"};

std::vector<Row> chunks_on_layouts() {
  return {
      {"2 head chunks", 1, 1, 1, kTwo, {}, ""},
      {"3 head chunks", 1, 1, 1, kThree, {}, ""},
      {"more head chunks than rows", 1, 1, 1, kMany, {}, ""},
      {"3 head chunks, micro-batch 3", 1, 1, 1, with(kThree, {"train.micro_batch_size=3"}), {}, ""},
      {"2 head chunks, tensor 2", 2, 1, 1, kTwo, {}, ""},
      {"3 head chunks, tensor 4", 4, 1, 1, kThree, {}, ""},
      {"more head chunks than rows, tensor 2", 2, 1, 1, kMany, {}, ""},
      {"3 head chunks, sequence", 2, 1, 1, with(kSequence, kThree), {}, ""},
      {"3 head chunks, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThree), {}, ""},
      {"3 head chunks, 2 x 2 x 2", 2, 2, 2, kThree, {}, ""},
      {"3 head chunks, pipeline 2", 1, 1, 2, kThree, {}, ""},
      {"3 head chunks, pipeline 8", 1, 1, 8, kThree, {}, ""},
      {"3 head chunks, gpipe", 1, 1, 2, with(kGpipe, kThree), {}, "3 head chunks, pipeline 2"},
      {"3 head chunks, gpipe, 2 x 2 x 2", 2, 2, 2, with(kGpipe, kThree), {}, "3 head chunks, 2 x 2 x 2"},
      {"3 head chunks, zero bubble", 1, 1, 2, with(kZero, kThree), {}, "3 head chunks, pipeline 2"},
      {"3 head chunks, zero bubble, sequence",
       2,
       2,
       2,
       with(with(kZero, kSequence), kThree),
       {},
       "3 head chunks, sequence, 2 x 2 x 2"},
      {"3 head chunks, interleaved", 1, 1, 2, with(kTwoChunks, kThree), {}, ""},
      {"3 head chunks, interleaved, sequence, distributed",
       2,
       2,
       2,
       with(with(with(kTwoChunks, kSequence), kShards), kThree),
       {},
       ""},
      {"3 head chunks, data 2", 1, 2, 1, kThree, {}, ""},
      {"3 head chunks, distributed", 1, 2, 1, with(kShards, kThree), {}, "3 head chunks, data 2"},
      {"3 head chunks, recompute", 1, 1, 1, with(kThree, {"recompute.mode=full"}), {}, "3 head chunks"},
      {"3 head chunks, most again", 1, 1, 1, with(kThree, kMostAgain), {}, "3 head chunks"},
      {"3 head chunks, context 2", 1, 1, 1, with(kThree, {"parallel.context=2"}), {}, ""},
      {"3 head chunks, context 2, tensor 2, sequence",
       2,
       1,
       2,
       with(with(kThree, kSequence), {"parallel.context=2"}),
       {},
       ""},
      {"3 head chunks, bf16", 1, 1, 1, with(kBf16, kThree), {}, ""},
      {"3 head chunks, bf16, sequence, 2 x 2 x 2", 2, 2, 2, with(with(kBf16, kSequence), kThree), {}, ""},
      {"3 head chunks, fp16, 2 x 2 x 2",
       2,
       2,
       2,
       with(kThree, {"precision.compute=fp16", "precision.loss_scale=4096"}),
       {},
       ""},
      {"3 head chunks, loss scale", 1, 1, 1, with(kThree, {"precision.loss_scale=65536"}), {}, "3 head chunks"},
  };
}

std::vector<Row> chunks_of_models() {
  const std::vector<std::string> bias = {"model.head_bias=true", "model.tie_embeddings=false"};
  const std::vector<std::string> mup = {"optimizer.scaling=mup", "model.base_hidden_size=8"};
  const std::vector<std::string> bert = {"model.family=bert"};
  const std::vector<std::string> post = {"model.family=bert", "model.norm_position=post"};
  const std::vector<std::string> megatron = {"model.family=t5", "model.layers=4", "model.decoder_sequence_length=8",
                                             "model.head_bias=true"};
  const std::vector<std::string> original = {"model.family=t5",
                                             "model.layers=5",
                                             "model.decoder_layers=3",
                                             "model.decoder_sequence_length=12",
                                             "model.normalization=rmsnorm",
                                             "model.scale_head=true"};
  // Scores far apart, as in rows_of_experts.cpp.
  const std::vector<std::string> experts = {"moe.experts=4",      "moe.z_coefficient=0.001", "moe.ffn_hidden_size=48",
                                            "model.init_std=0.2", "train.steps=2",           "train.seed=136"};
  const std::vector<std::string> packed = {"model.vocab_size=10", "task.name=instructions"};
  const std::vector<std::string> key_tokens = {"loss.name=key_tokens", "loss.token_ids=[3, 7, 12]", "loss.alpha=0.5"};
  return {
      {"3 head chunks, Llama", 1, 1, 1, kThree, kLlama, ""},
      {"3 head chunks, Llama, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThree), kLlama, ""},
      {"3 head chunks, a bias of the logits", 4, 1, 1, kThree, bias, ""},
      {"3 head chunks, muP", 2, 1, 2, kThree, mup, ""},
      {"3 head chunks, BERT", 1, 1, 1, with(kThree, {"train.micro_batch_size=4"}), bert, ""},
      {"3 head chunks, BERT, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThree), bert, ""},
      {"3 head chunks, BERT, zero bubble", 2, 2, 2, with(with(kZero, kSequence), kThree), bert,
       "3 head chunks, BERT, 2 x 2 x 2"},
      {"3 head chunks, post-norm BERT", 4, 1, 1, kThree, post, ""},
      {"3 head chunks, T5", 1, 1, 1, with(kThree, {"train.micro_batch_size=2"}), megatron, ""},
      {"3 head chunks, T5, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThree), megatron, ""},
      {"3 head chunks, the original T5", 4, 1, 2, kThree, original, ""},
      {"3 head chunks, experts", 1, 2, 1, with(kThree, {"parallel.expert=2"}), experts, ""},
      {"3 head chunks, instructions", 2, 2, 2, with(kSequence, kThree), packed, ""},
      {"3 head chunks, key tokens", 2, 1, 2, kThree, key_tokens, ""},
      {"3 head chunks, muon", 2, 1, 1, kThree, kMuon, ""},
      {"3 head chunks, curriculum",
       2,
       1,
       1,
       with(kSequence, kThree),
       {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"},
       ""},
      {"3 head chunks, ramp-up", 1, 2, 2, kThree, {"train.batch_ramp_up={start=4, increment=4, samples=16}"}, ""},
  };
}

}  // namespace

std::vector<Row> head_chunks() {
  std::vector<Row> rows = chunks_on_layouts();
  for (Row& row : chunks_of_models()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace megatron::test
