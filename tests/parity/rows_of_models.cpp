// Rows of other models than GPT-2.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> variants() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> shared_out = {"optimizer.share=state", "parallel.overlap_gradients=true"};
  const std::vector<std::string> two_groups = {"model.query_groups=2"};
  const std::vector<std::string> untied = {"model.tie_embeddings=false"};
  const std::vector<std::string> plain = {"model.bias=false", "model.position_embedding=none"};
  const std::vector<std::string> query_key_norm = {
      "model.position_embedding=rope", "model.rotary_fraction=0.5", "model.query_key_norm=true",
      "model.query_groups=1",          "model.activation=geglu",    "model.rotary_scaling={type=\"linear\", factor=2}"};
  const std::vector<std::string> exact = {"model.activation=gelu_exact"}, tanh = {"model.activation=tanh"};
  const std::vector<std::string> relu = {"model.activation=relu"};
  const std::vector<std::string> window = {
      "model.position_embedding=rope", "model.normalization=rmsnorm", "model.activation=geglu",
      "model.attention_window=5",      "model.head_size=10",          "model.query_groups=2",
      "model.bias=query_key_value",    "model.scale_embeddings=true", "model.query_key_norm=true"};
  const std::vector<std::string> parallel = {"model.residual=parallel", "model.embedding_norm=true",
                                             "model.position_embedding=rope", "model.bias=feed_forward",
                                             "model.tie_embeddings=false"};
  const std::vector<std::string> one_norm = {"model.residual=parallel_one_norm", "model.embedding_norm=true",
                                             "model.scale_embeddings=true", "model.head_bias=true",
                                             "model.bias=attention"};
  const std::vector<std::string> capped = {"model.attention_softcap=0.01", "model.position_embedding=rope",
                                           "model.query_groups=2"};
  const std::vector<std::string> capped_alibi = {"model.attention_softcap=0.01", "model.position_embedding=alibi"};
  const std::vector<std::string> mup = {"optimizer.scaling=mup", "model.base_hidden_size=8", "model.base_head_size=4",
                                        "model.scale_embeddings=true"};
  const std::vector<std::string> half = {"precision.compute=bf16"};
  return {
      {"window, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), window, ""},
      {"window, tensor 4", 4, 1, 1, {}, window, ""},
      {"window, zero bubble", 2, 1, 2, with(sequence, zero), window, ""},
      {"window, recompute", 2, 1, 2, with(sequence, full), window, "window, zero bubble"},
      {"window, bf16", 2, 2, 1, half, window, ""},
      {"parallel parts, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), parallel, ""},
      {"parallel parts, recompute", 2, 2, 2, with(sequence, with(shared_out, full)), parallel,
       "parallel parts, 2 x 2 x 2"},
      {"parallel parts, selective", 2, 2, 2, with(with(sequence, shared_out), {"recompute.mode=selective"}), parallel,
       "parallel parts, 2 x 2 x 2"},
      {"parallel parts, zero bubble", 2, 1, 2, zero, parallel, ""},
      {"parallel parts, interleaved", 2, 1, 2, with(sequence, kTwoChunks), parallel, ""},
      {"parallel parts, bf16", 2, 1, 2, half, parallel, ""},
      {"one norm, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), one_norm, ""},
      {"one norm, recompute", 2, 2, 2, with(sequence, with(shared_out, full)), one_norm, "one norm, 2 x 2 x 2"},
      {"one norm, most again", 2, 2, 2, with(sequence, with(shared_out, kMostAgain)), one_norm, "one norm, 2 x 2 x 2"},
      {"one norm, zero bubble", 2, 1, 2, zero, one_norm, ""},
      {"one norm, no dropout, zero bubble", 2, 1, 2, zero,
       with(one_norm, {"model.hidden_dropout=0", "model.attention_dropout=0"}), ""},
      {"one norm, bf16", 4, 2, 1, with(sequence, half), one_norm, ""},
      {"Llama, tensor 4", 4, 1, 1, {}, kLlama, ""},
      {"Llama, micro-batch 3", 1, 1, 1, with(full, {"train.micro_batch_size=3"}), kLlama, ""},
      {"Llama, 4 x 1 x 2", 4, 1, 2, sequence, kLlama, ""},
      {"Llama, zero bubble", 4, 1, 2, with(sequence, zero), kLlama, "Llama, 4 x 1 x 2"},
      {"Llama, recompute", 4, 1, 2, with(sequence, full), kLlama, "Llama, 4 x 1 x 2"},
      {"Llama, selective, zero bubble", 4, 1, 2, with(with(sequence, zero), {"recompute.mode=selective"}), kLlama,
       "Llama, 4 x 1 x 2"},
      {"Llama, most again", 4, 1, 2, with(sequence, kMostAgain), kLlama, "Llama, 4 x 1 x 2"},
      {"Llama, 2 x 2 x 2", 2, 2, 2, sequence, kLlama, ""},
      {"Llama, distributed", 2, 2, 2, with(sequence, shared_out), kLlama, "Llama, 2 x 2 x 2"},
      {"Llama, interleaved", 2, 1, 2, with(sequence, kTwoChunks), kLlama, ""},
      {"Llama, bf16", 2, 2, 2, with(sequence, {"precision.compute=bf16"}), kLlama, ""},
      {"Llama, curriculum", 2, 2, 1, sequence,
       with(kLlama, {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"}), ""},
      {"query and key norms, 2 x 1 x 2", 2, 1, 2, {}, query_key_norm, ""},
      {"query and key norms, zero bubble", 2, 1, 2, zero, query_key_norm, "query and key norms, 2 x 1 x 2"},
      {"query and key norms, 4 x 2 x 1", 4, 2, 1, with(sequence, shared_out), query_key_norm, ""},
      {"query and key norms, recompute", 4, 2, 1, with(sequence, full), query_key_norm,
       "query and key norms, 4 x 2 x 1"},
      {"query and key norms, norms again", 4, 2, 1, with(sequence, kNormsAgain), query_key_norm,
       "query and key norms, 4 x 2 x 1"},
      {"query and key norms, norms again, zero bubble", 2, 1, 2, with(zero, kNormsAgain), query_key_norm,
       "query and key norms, 2 x 1 x 2"},
      {"capped scores, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), capped, ""},
      {"capped scores, recompute", 2, 2, 2, with(sequence, with(shared_out, full)), capped, "capped scores, 2 x 2 x 2"},
      {"capped scores, tensor 4", 4, 1, 1, {}, capped, ""},
      {"capped scores, zero bubble", 2, 1, 2, zero, capped, ""},
      {"capped scores, bf16", 2, 2, 1, half, capped, ""},
      {"capped scores with ALiBi, 2 x 1 x 2", 2, 1, 2, sequence, capped_alibi, ""},
      {"muP, 2 x 2 x 2", 2, 2, 2, with(sequence, shared_out), mup, ""},
      {"muP, zero bubble", 2, 1, 2, zero, mup, ""},
      {"muP, Muon", 2, 2, 2, with(sequence, shared_out), with(mup, with(kMuon, {"model.tie_embeddings=false"})), ""},
      {"muP, bf16", 2, 2, 1, half, mup, ""},
      {"exact gelu", 2, 1, 2, zero, exact, ""},
      {"relu", 2, 1, 2, zero, relu, ""},
      {"tanh", 2, 1, 2, zero, tanh, ""},
      {"two groups", 2, 1, 1, {}, two_groups, ""},
      {"two groups, tensor 4", 4, 1, 1, {}, two_groups, ""},
      {"two groups, 4 x 2 x 1", 4, 2, 1, sequence, two_groups, ""},
      {"two groups, distributed", 4, 2, 1, with(sequence, shared_out), two_groups, "two groups, 4 x 2 x 1"},
      {"two groups, pipeline", 4, 1, 2, sequence, two_groups, ""},
      {"two groups, zero bubble", 4, 1, 2, with(sequence, zero), two_groups, "two groups, pipeline"},
      {"two groups, bf16", 4, 1, 2, with(sequence, {"precision.compute=bf16"}), two_groups, ""},
      {"one group, 2 x 2 x 2", 2, 2, 2, {}, kOneGroup, ""},
      {"one group, distributed, recompute", 2, 2, 2, with(full, shared_out), kOneGroup, "one group, 2 x 2 x 2"},
      {"one group, interleaved", 2, 1, 2, with(sequence, kTwoChunks), kOneGroup, ""},
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

}  // namespace megatron::test
