// Rows of heads whose logits are computed in chunks of rows, with gradients made in the forward: on every way to lay
// out and to play a run, and with everything that a loss of tokens can have.
#include "parity/shared_options.h"
#include "parity/subjects.h"

namespace megatron::test {

namespace {

// 16 rows of a micro-batch: halves, parts of 5 and 6 rows, single rows.
const std::vector<std::string> kTwoHeadChunks = {"model.head_chunks=2"}, kThreeHeadChunks = {"model.head_chunks=3"},
                               kManyHeadChunks = {"model.head_chunks=100"};
const std::vector<std::string> kGpipe = {"parallel.schedule=gpipe"};
const std::vector<std::string> kShards = {"optimizer.share=state", "parallel.overlap_gradients=true"};

std::vector<Row> chunks_on_layouts() {
  return {
      {"2 head chunks", 1, 1, 1, kTwoHeadChunks, {}, ""},
      {"3 head chunks", 1, 1, 1, kThreeHeadChunks, {}, ""},
      {"more head chunks than rows", 1, 1, 1, kManyHeadChunks, {}, ""},
      {"3 head chunks, micro-batch 3", 1, 1, 1, with(kThreeHeadChunks, {"train.micro_batch_size=3"}), {}, ""},
      {"2 head chunks, tensor 2", 2, 1, 1, kTwoHeadChunks, {}, ""},
      {"3 head chunks, tensor 4", 4, 1, 1, kThreeHeadChunks, {}, ""},
      {"more head chunks than rows, tensor 2", 2, 1, 1, kManyHeadChunks, {}, ""},
      {"3 head chunks, sequence", 2, 1, 1, with(kSequence, kThreeHeadChunks), {}, ""},
      {"3 head chunks, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThreeHeadChunks), {}, ""},
      {"3 head chunks, 2 x 2 x 2", 2, 2, 2, kThreeHeadChunks, {}, ""},
      {"3 head chunks, pipeline 2", 1, 1, 2, kThreeHeadChunks, {}, ""},
      {"3 head chunks, pipeline 8", 1, 1, 8, kThreeHeadChunks, {}, ""},
      {"3 head chunks, gpipe", 1, 1, 2, with(kGpipe, kThreeHeadChunks), {}, "3 head chunks, pipeline 2"},
      {"3 head chunks, gpipe, 2 x 2 x 2", 2, 2, 2, with(kGpipe, kThreeHeadChunks), {}, "3 head chunks, 2 x 2 x 2"},
      {"3 head chunks, zero bubble", 1, 1, 2, with(kZero, kThreeHeadChunks), {}, "3 head chunks, pipeline 2"},
      {"3 head chunks, zero bubble, sequence",
       2,
       2,
       2,
       with(with(kZero, kSequence), kThreeHeadChunks),
       {},
       "3 head chunks, sequence, 2 x 2 x 2"},
      {"3 head chunks, interleaved", 1, 1, 2, with(kTwoChunks, kThreeHeadChunks), {}, ""},
      {"3 head chunks, interleaved, sequence, distributed",
       2,
       2,
       2,
       with(with(with(kTwoChunks, kSequence), kShards), kThreeHeadChunks),
       {},
       ""},
      {"3 head chunks, data 2", 1, 2, 1, kThreeHeadChunks, {}, ""},
      {"3 head chunks, distributed", 1, 2, 1, with(kShards, kThreeHeadChunks), {}, "3 head chunks, data 2"},
      {"3 head chunks, recompute", 1, 1, 1, with(kThreeHeadChunks, {"recompute.mode=full"}), {}, "3 head chunks"},
      {"3 head chunks, most again", 1, 1, 1, with(kThreeHeadChunks, kMostAgain), {}, "3 head chunks"},
      {"3 head chunks, context 2", 1, 1, 1, with(kThreeHeadChunks, {"parallel.context=2"}), {}, ""},
      {"3 head chunks, context 2, tensor 2, sequence",
       2,
       1,
       2,
       with(with(kThreeHeadChunks, kSequence), {"parallel.context=2"}),
       {},
       ""},
      {"3 head chunks, bf16", 1, 1, 1, with(kBf16, kThreeHeadChunks), {}, ""},
      {"3 head chunks, bf16, sequence, 2 x 2 x 2", 2, 2, 2, with(with(kBf16, kSequence), kThreeHeadChunks), {}, ""},
      {"3 head chunks, fp16, 2 x 2 x 2",
       2,
       2,
       2,
       with(kThreeHeadChunks, {"precision.compute=fp16", "precision.loss_scale=4096"}),
       {},
       ""},
      {"3 head chunks, loss scale",
       1,
       1,
       1,
       with(kThreeHeadChunks, {"precision.loss_scale=65536"}),
       {},
       "3 head chunks"},
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
      {"3 head chunks, Llama", 1, 1, 1, kThreeHeadChunks, kLlama, ""},
      {"3 head chunks, Llama, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThreeHeadChunks), kLlama, ""},
      {"3 head chunks, a bias of the logits", 4, 1, 1, kThreeHeadChunks, bias, ""},
      {"3 head chunks, muP", 2, 1, 2, kThreeHeadChunks, mup, ""},
      {"3 head chunks, BERT", 1, 1, 1, with(kThreeHeadChunks, {"train.micro_batch_size=4"}), bert, ""},
      {"3 head chunks, BERT, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThreeHeadChunks), bert, ""},
      {"3 head chunks, BERT, zero bubble", 2, 2, 2, with(with(kZero, kSequence), kThreeHeadChunks), bert,
       "3 head chunks, BERT, 2 x 2 x 2"},
      {"3 head chunks, post-norm BERT", 4, 1, 1, kThreeHeadChunks, post, ""},
      {"3 head chunks, T5", 1, 1, 1, with(kThreeHeadChunks, {"train.micro_batch_size=2"}), megatron, ""},
      {"3 head chunks, T5, sequence, 2 x 2 x 2", 2, 2, 2, with(kSequence, kThreeHeadChunks), megatron, ""},
      {"3 head chunks, the original T5", 4, 1, 2, kThreeHeadChunks, original, ""},
      {"3 head chunks, experts", 1, 2, 1, with(kThreeHeadChunks, {"parallel.expert=2"}), experts, ""},
      {"3 head chunks, instructions", 2, 2, 2, with(kSequence, kThreeHeadChunks), packed, ""},
      {"3 head chunks, key tokens", 2, 1, 2, kThreeHeadChunks, key_tokens, ""},
      {"3 head chunks, muon", 2, 1, 1, kThreeHeadChunks, kMuon, ""},
      {"3 head chunks, curriculum",
       2,
       1,
       1,
       with(kSequence, kThreeHeadChunks),
       {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"},
       ""},
      {"3 head chunks, ramp-up",
       1,
       2,
       2,
       kThreeHeadChunks,
       {"train.batch_ramp_up={start=4, increment=4, samples=16}"},
       ""},
  };
}

}  // namespace

std::vector<Row> head_chunks() {
  std::vector<Row> rows = chunks_on_layouts();
  for (Row& row : chunks_of_models()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace megatron::test
