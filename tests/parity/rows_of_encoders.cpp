// Rows of encoders: BERT with its norms before and after each part, pretrained and with the head of a task.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> encoders() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> shared_out = {"optimizer.share=state", "parallel.overlap_gradients=true"};
  const std::vector<std::string> half = {"precision.compute=bf16"};
  const std::vector<std::string> fp16 = {"precision.compute=fp16", "precision.loss_scale=1024"};
  const std::vector<std::string> pre = {"model.family=bert"};
  const std::vector<std::string> post = {"model.family=bert", "model.norm_position=post", "model.embedding_norm=true",
                                         "model.activation=gelu_exact"};
  const std::vector<std::string> other = {"model.family=bert",          "model.position_embedding=rope",
                                          "model.query_groups=2",       "model.normalization=rmsnorm",
                                          "model.tie_embeddings=false", "model.activation=tanh"};
  const std::vector<std::string> labels = {"model.family=bert", "task.name=classification", "task.labels=3"};
  const std::vector<std::string> choices =
      with(post, {"task.name=multiple_choice", "task.choices=3", "model.tie_embeddings=false"});
  const std::vector<std::string> plain = {"model.hidden_dropout=0", "model.attention_dropout=0"};
  return {
      {"BERT, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, pre, ""},
      {"BERT, tensor 4", 4, 1, 1, {}, pre, ""},
      {"BERT, tensor 4, sequence", 4, 1, 1, with(sequence, {"train.micro_batch_size=3"}), pre, ""},
      {"BERT, pipeline 8", 1, 1, 8, {}, pre, ""},
      {"BERT, gpipe", 1, 1, 8, {"parallel.schedule=gpipe"}, pre, "BERT, pipeline 8"},
      {"BERT, 2 x 2 x 2", 2, 2, 2, sequence, pre, ""},
      {"BERT, distributed", 2, 2, 2, with(sequence, shared_out), pre, "BERT, 2 x 2 x 2"},
      {"BERT, recompute", 2, 2, 2, with(sequence, full), pre, "BERT, 2 x 2 x 2"},
      {"BERT, most again", 2, 2, 2, with(sequence, kMostAgain), pre, "BERT, 2 x 2 x 2"},
      {"BERT, zero bubble", 2, 2, 2, with(sequence, zero), pre, "BERT, 2 x 2 x 2"},
      {"BERT, zero bubble without dropout", 1, 2, 4, zero, with(pre, plain), ""},
      {"BERT, interleaved", 2, 1, 2, with(kTwoChunks, sequence), pre, ""},
      {"BERT, uneven stages", 1, 1, 4, {"parallel.layers_per_stage=[1, 3, 3, 1]"}, pre, ""},
      {"BERT, ramp-up", 1, 2, 2, {}, with(pre, {"train.batch_ramp_up={start=4, increment=4, samples=16}"}), ""},
      {"BERT, bf16", 2, 2, 2, with(sequence, half), pre, ""},
      {"BERT, fp16", 4, 1, 1, fp16, pre, ""},
      {"muP, BERT, 2 x 2 x 2", 2, 2, 2, sequence, with(pre, {"optimizer.scaling=mup", "model.base_hidden_size=8"}), ""},
      {"post-norm BERT, tensor 4", 4, 1, 1, {}, post, ""},
      {"post-norm BERT, data 3", 1, 3, 1, {"train.micro_batch_size=2"}, post, ""},
      {"post-norm BERT, 2 x 2 x 2", 2, 2, 2, sequence, post, ""},
      {"post-norm BERT, distributed", 2, 2, 2, with(sequence, shared_out), post, "post-norm BERT, 2 x 2 x 2"},
      {"post-norm BERT, recompute", 2, 2, 2, with(sequence, full), post, "post-norm BERT, 2 x 2 x 2"},
      {"post-norm BERT, selective", 2, 2, 2, with(sequence, {"recompute.mode=selective"}), post,
       "post-norm BERT, 2 x 2 x 2"},
      {"post-norm BERT, zero bubble, most again", 2, 2, 2, with(with(sequence, zero), kMostAgain), post,
       "post-norm BERT, 2 x 2 x 2"},
      {"post-norm BERT, zero bubble", 2, 2, 2, with(sequence, zero), post, "post-norm BERT, 2 x 2 x 2"},
      {"post-norm BERT, zero bubble without dropout", 1, 2, 4, zero, with(post, plain), ""},
      {"post-norm BERT, interleaved", 2, 1, 2, with(kTwoChunks, full), post, ""},
      {"post-norm BERT, bf16", 2, 2, 2, with(sequence, half), post, ""},
      {"other BERT, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), other, ""},
      {"other BERT, zero bubble", 4, 1, 2, with(sequence, zero), other, ""},
      {"labels, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, labels, ""},
      {"labels, tensor 4, sequence", 4, 1, 1, with(sequence, {"train.micro_batch_size=2"}), labels, ""},
      {"labels, pipeline 8", 1, 1, 8, {}, labels, ""},
      {"labels, 2 x 2 x 2", 2, 2, 2, sequence, labels, ""},
      {"labels, distributed", 2, 2, 2, with(sequence, shared_out), labels, "labels, 2 x 2 x 2"},
      {"labels, recompute", 2, 2, 2, with(sequence, full), labels, "labels, 2 x 2 x 2"},
      {"labels, zero bubble", 2, 2, 2, with(sequence, zero), labels, "labels, 2 x 2 x 2"},
      {"labels, interleaved", 2, 1, 2, with(kTwoChunks, sequence), labels, ""},
      {"labels, bf16", 2, 2, 2, with(sequence, half), labels, ""},
      {"labels, fp16", 4, 1, 1, fp16, labels, ""},
      {"choices, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, choices, ""},
      {"choices, tensor 2, sequence", 2, 1, 1, with(sequence, {"train.micro_batch_size=2"}), choices, ""},
      {"choices, 2 x 2 x 2", 2, 2, 2, sequence, choices, ""},
      {"choices, distributed", 2, 2, 2, with(sequence, shared_out), choices, "choices, 2 x 2 x 2"},
      {"choices, zero bubble", 2, 2, 2, with(sequence, zero), choices, "choices, 2 x 2 x 2"},
      {"choices, interleaved", 1, 2, 2, kTwoChunks, choices, ""},
      {"choices, bf16", 2, 2, 2, with(sequence, half), choices, ""},
  };
}

}  // namespace megatron::test
