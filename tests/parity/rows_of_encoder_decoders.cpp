// Rows of encoder-decoders: T5 as Megatron's and as the original, cut between encoder and decoder and inside either.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> encoder_decoders() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> shared_out = {"optimizer.share=state", "parallel.overlap_gradients=true"};
  const std::vector<std::string> half = {"precision.compute=bf16"};
  const std::vector<std::string> fp16 = {"precision.compute=fp16", "precision.loss_scale=1024"};
  const std::vector<std::string> plain = {"model.hidden_dropout=0", "model.attention_dropout=0"};
  const std::vector<std::string> megatron = {"model.family=t5", "model.layers=4", "model.decoder_sequence_length=8",
                                             "model.head_bias=true"};
  const std::vector<std::string> original = {"model.family=t5",
                                             "model.layers=5",
                                             "model.decoder_layers=3",
                                             "model.decoder_sequence_length=12",
                                             "model.position_embedding=relative",
                                             "model.relative_buckets=8",
                                             "model.relative_max_distance=12",
                                             "model.normalization=rmsnorm",
                                             "model.bias=false",
                                             "model.attention_scale=none",
                                             "model.scale_head=true",
                                             "model.activation=relu"};
  const std::vector<std::string> gated =
      with(original, {"model.activation=geglu", "model.tie_embeddings=false", "model.scale_head=false",
                      "model.head_size=12", "model.query_groups=2"});
  std::vector<Row> rows = {
      {"T5, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, megatron, ""},
      {"T5, tensor 4", 4, 1, 1, {}, megatron, ""},
      {"T5, tensor 4, sequence", 4, 1, 1, with(sequence, {"train.micro_batch_size=3"}), megatron, ""},
      {"T5, pipeline 8", 1, 1, 8, {}, megatron, ""},
      {"T5, both embeddings on stage 0 of 4", 1, 1, 4, {"parallel.layers_per_stage=[5, 1, 1, 1]"}, megatron, ""},
      {"T5, gpipe", 1, 1, 8, {"parallel.schedule=gpipe"}, megatron, "T5, pipeline 8"},
      {"T5, split at stage 1", 2, 2, 2, with(sequence, {"parallel.split_stage=1"}), megatron, ""},
      {"T5, distributed", 2, 2, 2, with(sequence, shared_out), megatron, "T5, split at stage 1"},
      {"T5, recompute", 2, 2, 2, with(sequence, full), megatron, "T5, split at stage 1"},
      {"T5, most again", 2, 2, 2, with(sequence, kMostAgain), megatron, "T5, split at stage 1"},
      {"T5, selective, zero bubble", 2, 2, 2, with(with(sequence, zero), {"recompute.mode=selective"}), megatron,
       "T5, split at stage 1"},
      {"T5, zero bubble", 2, 2, 2, with(sequence, zero), megatron, "T5, split at stage 1"},
      {"T5, zero bubble without dropout", 1, 2, 4, zero, with(megatron, plain), ""},
      {"T5, interleaved", 2, 1, 2, with(kTwoChunks, sequence), megatron, ""},
      {"T5, ramp-up", 1, 2, 2, {}, with(megatron, {"train.batch_ramp_up={start=4, increment=4, samples=16}"}), ""},
      {"T5, bf16", 2, 2, 2, with(sequence, half), megatron, ""},
      {"T5, fp16", 4, 1, 1, fp16, megatron, ""},
      {"relative T5, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, original, ""},
      {"relative T5, tensor 4", 4, 1, 1, {}, original, ""},
      {"muP, relative T5, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out),
       with(original, {"optimizer.scaling=mup", "model.base_hidden_size=16", "model.base_head_size=4"}), ""},
      {"relative T5, data 3", 1, 3, 1, {"train.micro_batch_size=2"}, original, ""},
      {"relative T5, pipeline 8", 1, 1, 8, {}, original, ""},
      {"relative T5, 2 x 2 x 2", 2, 2, 2, sequence, original, ""},
      {"relative T5, distributed", 2, 2, 2, with(sequence, shared_out), original, "relative T5, 2 x 2 x 2"},
      {"relative T5, recompute", 2, 2, 2, with(sequence, full), original, "relative T5, 2 x 2 x 2"},
      {"relative T5, some recomputed", 1, 1, 2, with(full, {"recompute.layers=3"}), original, ""},
      {"relative T5, zero bubble", 2, 2, 2, with(sequence, zero), original, "relative T5, 2 x 2 x 2"},
      {"relative T5, interleaved", 2, 1, 2, with(kTwoChunks, full), original, ""},
      {"relative T5, distributed, interleaved", 1, 2, 4, with(kTwoChunks, shared_out), original, ""},
      // Not with ReLU, whose derivative jumps where 16 bits round to the other side of 0.
      {"relative T5, bf16", 2, 2, 2, with(sequence, half), with(original, {"model.activation=gelu"}), ""},
      {"capped T5, 2 x 2 x 2", 2, 2, 2, sequence, with(original, {"model.attention_softcap=0.5"}), ""},
      {"gated T5, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), gated, ""},
      {"gated T5, groups shared by ranks", 4, 1, 2, with(sequence, zero), gated, ""},
  };
  // The decoder begins on each later stage in turn, at its start and inside it.
  for (const char* cut :
       {"[5, 1, 1, 1]", "[4, 2, 1, 1]", "[4, 1, 2, 1]", "[2, 2, 3, 1]", "[2, 2, 1, 3]", "[1, 2, 1, 4]"}) {
    rows.push_back({std::string("relative T5, stages ") + cut,
                    1,
                    1,
                    4,
                    {std::string("parallel.layers_per_stage=") + cut},
                    original,
                    ""});
  }
  return rows;
}

}  // namespace megatron::test
