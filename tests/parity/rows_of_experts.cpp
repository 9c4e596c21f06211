// Rows of models with experts.
#include <fmt/format.h>

#include "parity/subjects.h"

namespace megatron::test {

namespace {

/// Large weights, few steps and a seed with which no score of an expert is close to the next one (kLeastGap).
std::vector<std::string> with_wide_gaps(const std::vector<std::string>& model, int seed) {
  return with(model, {"model.init_std=0.2", "train.steps=2", fmt::format("train.seed={}", seed)});
}

}  // namespace

std::vector<Row> experts() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> selective = {"recompute.mode=selective"};
  const std::vector<std::string> distributed = {"optimizer.share=state", "parallel.overlap_gradients=true"};
  const std::vector<std::string> context2 = {"parallel.context=2"}, context4 = {"parallel.context=4"},
                                 context8 = {"parallel.context=8"};
  const std::vector<std::string> two = {"parallel.expert=2"}, four = {"parallel.expert=4"};
  const std::vector<std::string> half = {"precision.compute=bf16"};  // may choose other experts
  const std::vector<std::string> four_experts = {"moe.experts=4", "moe.z_coefficient=0.001", "moe.ffn_hidden_size=48"};
  const std::vector<std::string> large = with_wide_gaps(four_experts, 136);
  // Small experts of which each token goes to three, in every second layer; some tokens find no room.
  const std::vector<std::string> eight_experts = {
      "moe.experts=8",           "moe.top_k=3",     "moe.every=2", "moe.ffn_hidden_size=16", "moe.renormalize=false",
      "model.activation=swiglu", "model.bias=false"};
  const std::vector<std::string> cramped =
      with(eight_experts,
           {"moe.capacity_factor=0.75", "moe.drop=random", "moe.minimum_capacity=1", "model.position_embedding=rope"});
  const std::vector<std::string> small = with_wide_gaps(cramped, 268);
  // With a dense part that all tokens go through.
  const std::vector<std::string> shared = with_wide_gaps(
      with(four_experts, {"moe.shared_experts=2", "moe.ffn_hidden_size=32", "moe.jitter=0.1", "moe.every=2"}), 6);
  const std::vector<std::string> gated =
      with_wide_gaps(with(cramped, {"moe.shared_experts=3", "moe.shared_gate=true", "moe.drop=position"}), 13);
  const std::vector<std::string> residual =
      with_wide_gaps(with(four_experts, {"moe.residual=true", "moe.jitter=0.01"}), 23);
  // Without drops. Of rows whose buffer is not the reference's, other rounds.
  const std::vector<std::string> dropless = {"moe.drop=none"}, smallest = {"moe.buffer=1"};
  const std::vector<std::string> every = with_wide_gaps(with(four_experts, dropless), 4);
  const std::vector<std::string> small_dropless = with_wide_gaps(with(eight_experts, dropless), 273);
  const std::vector<std::string> bert_experts = {"model.family=bert", "moe.experts=4", "moe.top_k=1",
                                                 "moe.renormalize=false", "moe.layers=[0, 3]"};
  const std::vector<std::string> bert = with_wide_gaps(bert_experts, 1);
  const std::vector<std::string> bert_shared =
      with_wide_gaps(with(bert_experts, {"moe.shared_experts=1", "moe.shared_gate=true", "moe.jitter=0.1"}), 7);
  const std::vector<std::string> t5_experts = {"model.family=t5", "model.layers=4", "moe.experts=4", "moe.every=2"};
  const std::vector<std::string> t5 = with_wide_gaps(t5_experts, 14),
                                 t5_dropless = with_wide_gaps(with(t5_experts, dropless), 6);
  // The gradient of a mixture's bias is a sum of terms of both signs: with the default seed one is 1/1800 of the sum of
  // their absolute values. One rank's own micro-batch size changes it by 8e-5 then, its weight's gradient by 2e-7.
  const std::vector<std::string> t5_residual =
      with_wide_gaps(with(t5_experts, {"moe.residual=true", "moe.jitter=0.1"}), 1);
  return {
      {"experts, tensor 2", 2, 1, 1, {}, large, ""},
      {"experts, tensor 4, sequence parallel", 4, 1, 1, sequence, large, ""},
      {"experts, data 2", 1, 2, 1, {}, large, ""},
      {"experts, expert 2", 1, 2, 1, two, large, ""},
      {"experts, expert 4", 1, 4, 1, four, large, ""},
      {"experts, expert 2 of data 4", 1, 4, 1, two, large, ""},
      {"experts, expert 2 of data 4, distributed", 1, 4, 1, with(two, distributed), large, ""},
      {"experts, expert 4, distributed", 1, 4, 1, with(four, distributed), large, ""},
      {"experts, tensor 2, expert 2", 2, 2, 1, with(two, sequence), large, ""},
      {"experts, tensor 2, expert 2, recompute", 2, 2, 1, with(two, with(sequence, full)), large,
       "experts, tensor 2, expert 2"},
      {"experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), large, ""},
      {"experts, 2 x 2 x 2, expert 2, zero bubble", 2, 2, 2, with(two, with(sequence, zero)), large,
       "experts, 2 x 2 x 2, expert 2"},
      {"experts, 2 x 2 x 2, expert 2, selective", 2, 2, 2, with(two, with(sequence, selective)), large,
       "experts, 2 x 2 x 2, expert 2"},
      {"experts, 2 x 2 x 2, expert 2, zero bubble, activations again", 2, 2, 2,
       with(two, with(with(sequence, zero), kActivationsAgain)), large, "experts, 2 x 2 x 2, expert 2"},
      {"experts, interleaved, expert 2", 1, 2, 2, with(two, kTwoChunks), large, ""},
      {"experts, micro-batch 2, expert 2", 1, 2, 1, with(two, {"train.micro_batch_size=2"}), large, ""},
      {"all experts, 2 x 2 x 2, expert 2, five steps", 2, 2, 2, with(two, with(sequence, distributed)),
       with(four_experts, {"moe.top_k=4"}), ""},
      {"all experts, bf16", 2, 2, 1, with(two, with(sequence, half)), with(four_experts, {"moe.top_k=4"}), ""},
      {"small experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, with(sequence, distributed)), small, ""},
      {"small experts, expert 4, zero bubble", 1, 4, 2, with(four, zero), small, ""},
      {"small experts, tensor 4", 4, 1, 1, {}, small, ""},
      {"small experts, recompute", 1, 2, 2, with(two, full), small, ""},
      {"shared experts, tensor 4", 4, 1, 1, {}, shared, ""},
      {"shared experts, expert 4, distributed", 1, 4, 1, with(four, distributed), shared, ""},
      {"shared experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), shared, ""},
      {"shared experts, 2 x 2 x 2, expert 2, recompute", 2, 2, 2, with(two, with(sequence, full)), shared,
       "shared experts, 2 x 2 x 2, expert 2"},
      {"shared experts, 2 x 2 x 2, expert 2, most again", 2, 2, 2, with(two, with(sequence, kMostAgain)), shared,
       "shared experts, 2 x 2 x 2, expert 2"},
      {"shared experts, 2 x 2 x 2, expert 2, zero bubble", 2, 2, 2, with(two, with(sequence, zero)), shared,
       "shared experts, 2 x 2 x 2, expert 2"},
      {"shared experts with a gate, tensor 2", 2, 1, 1, {}, gated, ""},
      {"shared experts with a gate, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), gated, ""},
      {"shared experts with a gate, 2 x 2 x 2, expert 2, recompute", 2, 2, 2, with(two, with(sequence, full)), gated,
       "shared experts with a gate, 2 x 2 x 2, expert 2"},
      {"shared experts with a gate, expert 4, zero bubble", 1, 4, 2, with(four, zero), gated, ""},
      {"residual experts, tensor 4, sequence parallel", 4, 1, 1, sequence, residual, ""},
      {"residual experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, with(sequence, distributed)), residual, ""},
      {"residual experts, 2 x 2 x 2, expert 2, zero bubble", 2, 2, 2,
       with(two, with(with(sequence, distributed), zero)), residual, "residual experts, 2 x 2 x 2, expert 2"},
      {"residual experts, 2 x 2 x 2, expert 2, zero bubble, most again", 2, 2, 2,
       with(two, with(with(with(sequence, distributed), zero), kMostAgain)), residual,
       "residual experts, 2 x 2 x 2, expert 2"},
      {"residual experts, recompute, micro-batch 2", 1, 2, 2, with(two, with(full, {"train.micro_batch_size=2"})),
       residual, ""},
      {"all experts and shared ones, bf16", 2, 2, 1, with(two, with(sequence, half)),
       with(four_experts, {"moe.top_k=4", "moe.shared_experts=1", "moe.shared_gate=true"}), ""},
      {"T5 with residual experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), t5_residual, ""},
      {"BERT with shared experts, zero bubble", 1, 2, 2, with(two, zero), bert_shared, ""},
      {"dropless, smallest buffer", 1, 1, 1, smallest, every, ""},
      {"dropless, large buffer", 1, 1, 1, {"moe.buffer=1000"}, every, ""},
      {"dropless, tensor 2", 2, 1, 1, smallest, every, ""},
      {"dropless, tensor 4, sequence parallel", 4, 1, 1, with(smallest, sequence), every, ""},
      {"dropless, data 2", 1, 2, 1, smallest, every, ""},
      {"dropless, expert 2", 1, 2, 1, with(smallest, two), every, ""},
      {"dropless, expert 4, distributed", 1, 4, 1, with(four, distributed), every, ""},
      {"dropless, expert 2 of data 4", 1, 4, 1, with(smallest, two), every, ""},
      {"dropless, tensor 2, expert 2", 2, 2, 1, with(smallest, with(two, sequence)), every, ""},
      {"dropless, tensor 2, expert 2, recompute", 2, 2, 1, with(smallest, with(two, with(sequence, full))), every,
       "dropless, tensor 2, expert 2"},
      {"dropless, 2 x 2 x 2, expert 2", 2, 2, 2, with(smallest, with(two, sequence)), every, ""},
      {"dropless, 2 x 2 x 2, expert 2, zero bubble", 2, 2, 2, with(smallest, with(two, with(sequence, zero))), every,
       "dropless, 2 x 2 x 2, expert 2"},
      {"dropless, 2 x 2 x 2, expert 2, selective", 2, 2, 2, with(smallest, with(two, with(sequence, selective))), every,
       "dropless, 2 x 2 x 2, expert 2"},
      {"dropless, 2 x 2 x 2, expert 2, zero bubble, most again", 2, 2, 2,
       with(smallest, with(two, with(with(sequence, zero), kMostAgain))), every, "dropless, 2 x 2 x 2, expert 2"},
      {"dropless, interleaved, expert 2", 1, 2, 2, with(smallest, with(two, kTwoChunks)), every, ""},
      {"dropless, micro-batch 2, expert 2", 1, 2, 1, with(two, {"train.micro_batch_size=2"}), every, ""},
      {"dropless, all experts, 2 x 2 x 2, expert 2, five steps", 2, 2, 2, with(smallest, with(two, sequence)),
       with(four_experts, with(dropless, {"moe.top_k=4"})), ""},
      {"dropless, all experts, bf16", 2, 2, 1, with(two, with(sequence, half)),
       with(four_experts, with(dropless, {"moe.top_k=4"})), ""},
      {"dropless, small experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(smallest, with(two, sequence)), small_dropless,
       ""},
      {"dropless, small experts, expert 4, zero bubble", 1, 4, 2, with(smallest, with(four, zero)), small_dropless, ""},
      {"dropless, small experts, recompute", 1, 2, 2, with(smallest, with(two, full)), small_dropless, ""},
      {"T5 without drops, 2 x 2 x 2, expert 2", 2, 2, 2, with(smallest, with(two, sequence)), t5_dropless, ""},
      {"BERT with experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), bert, ""},
      {"BERT with experts, zero bubble", 1, 2, 2, with(two, zero), bert, ""},
      {"T5 with experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), t5, ""},
      {"T5 with experts, interleaved", 1, 2, 2, with(two, kTwoChunks), t5, ""},
      {"context 2, experts", 1, 1, 1, context2, large, ""},
      {"context 4, experts, micro-batch 3", 1, 1, 1, with(context4, {"train.micro_batch_size=3"}), large, ""},
      {"context 8, experts", 1, 1, 1, context8, large, ""},
      {"context 2, experts, tensor 2", 2, 1, 1, context2, large, ""},
      {"context 2, experts, tensor 2, sequence", 2, 1, 1, with(context2, sequence), large, ""},
      {"context 2, experts, expert 2", 1, 2, 1, with(context2, two), large, ""},
      {"context 2, experts, expert 2 of data 4, distributed", 1, 4, 1, with(context2, with(two, distributed)), large,
       ""},
      {"context 2, experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(context2, with(two, sequence)), large, ""},
      {"context 2, experts, 2 x 2 x 2, expert 2, zero bubble", 2, 2, 2, with(context2, with(two, with(sequence, zero))),
       large, "context 2, experts, 2 x 2 x 2, expert 2"},
      {"context 2, experts, interleaved, recompute", 1, 2, 2, with(context2, with(full, kTwoChunks)), large, ""},
      {"context 2, all experts, bf16", 2, 2, 1, with(context2, with(two, with(sequence, half))),
       with(four_experts, {"moe.top_k=4"}), ""},
      {"context 2, small experts", 1, 1, 1, context2, small, ""},
      {"context 2, small experts, ring", 1, 1, 1, with(context2, {"parallel.context_exchange=ring"}),
       with_wide_gaps(with(cramped, {"model.attention_dropout=0"}), 393), ""},
      {"context 2, small experts, expert 2, sequence", 2, 2, 1, with(context2, with(two, sequence)), small, ""},
      {"context 4, small experts, distributed, zero bubble", 1, 2, 2, with(context4, with(distributed, zero)), small,
       ""},
      {"context 2, shared experts, 2 x 2 x 1, expert 2", 2, 2, 1, with(context2, with(two, sequence)), shared, ""},
      {"context 4, shared experts with a gate", 1, 2, 1, context4, gated, ""},
      {"context 2, residual experts, tensor 2", 2, 1, 1, context2, residual, ""},
      {"context 4, residual experts, expert 2, recompute", 1, 2, 1, with(context4, with(two, full)), residual, ""},
      {"context 2, dropless", 1, 1, 1, with(context2, smallest), every, ""},
      {"context 4, dropless, 2 x 2 x 1, expert 2", 2, 2, 1, with(context4, with(smallest, with(two, sequence))), every,
       ""},
      {"context 2, dropless, small experts, recompute", 1, 2, 2, with(context2, with(smallest, with(two, full))),
       small_dropless, ""},
      {"context 2, small experts, micro-batch 2", 1, 1, 1, with(context2, {"train.micro_batch_size=2"}), small, ""},
      {"context 2, all experts, curriculum", 1, 1, 1, context2,
       with(four_experts,
            {"moe.top_k=4", "train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"}),
       ""},
      {"context 2, T5 with experts", 1, 1, 1, context2, t5, ""},
      {"context 2, T5 with experts, 2 x 2 x 1, expert 2", 2, 2, 1, with(context2, with(two, sequence)), t5, ""},
      {"context 2, T5 without drops, expert 2", 1, 2, 1, with(context2, two), t5_dropless, ""},
      {"context 2, BERT with experts", 1, 1, 1, context2, bert, ""},
      {"context 4, BERT with shared experts", 1, 1, 1, context4, bert_shared, ""},
      {"context 2, BERT with shared experts, zero bubble", 1, 2, 2, with(context2, with(two, zero)), bert_shared, ""},
  };
}

}  // namespace megatron::test
