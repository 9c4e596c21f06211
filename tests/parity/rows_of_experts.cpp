// Rows of models with experts.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> experts() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"}, full = {"recompute.mode=full"};
  const std::vector<std::string> distributed = {"optimizer.distributed=true", "parallel.overlap_gradients=true"};
  const std::vector<std::string> two = {"parallel.expert=2"}, four = {"parallel.expert=4"};
  const std::vector<std::string> half = {"precision.compute=bf16"};  // which may choose other experts
  const std::vector<std::string> large = {"moe.experts=4", "moe.z_coefficient=0.001", "moe.ffn_hidden_size=48"};
  // Small experts of which each token goes to three, in every second layer; some tokens find no room.
  const std::vector<std::string> small = {"moe.experts=8",
                                          "moe.top_k=3",
                                          "moe.every=2",
                                          "moe.ffn_hidden_size=16",
                                          "moe.capacity_factor=0.75",
                                          "moe.drop=random",
                                          "moe.minimum_capacity=1",
                                          "moe.renormalize=false",
                                          "model.activation=swiglu",
                                          "model.bias=false",
                                          "model.position_embedding=rope"};
  // With a dense part that all tokens go through.
  const std::vector<std::string> shared =
      with(large, {"moe.shared_experts=2", "moe.ffn_hidden_size=32", "moe.jitter=0.1", "moe.every=2"});
  const std::vector<std::string> gated =
      with(small, {"moe.shared_experts=3", "moe.shared_gate=true", "moe.drop=position"});
  const std::vector<std::string> residual = with(large, {"moe.residual=true", "moe.jitter=0.01"});
  // Without drops. Of rows whose buffer is not the reference's, other rounds.
  const auto dropless = [](std::vector<std::string> settings) {
    settings.emplace_back("moe.drop=none");
    return settings;
  };
  const std::vector<std::string> every = dropless(large), smallest = {"moe.buffer=1"};
  const std::vector<std::string> small_dropless =
      dropless({"moe.experts=8", "moe.top_k=3", "moe.every=2", "moe.ffn_hidden_size=16", "moe.renormalize=false",
                "model.activation=swiglu", "model.bias=false"});
  const std::vector<std::string> bert = {"model.family=bert", "moe.experts=4", "moe.top_k=1", "moe.renormalize=false",
                                         "moe.layers=[0, 3]"};
  const std::vector<std::string> t5 = {"model.family=t5", "model.layers=4", "moe.experts=4", "moe.every=2"};
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
      {"experts, interleaved, expert 2", 1, 2, 2, with(two, kTwoChunks), large, ""},
      {"experts, micro-batch 2, expert 2", 1, 2, 1, with(two, {"train.micro_batch_size=2"}), large, ""},
      {"all experts, bf16", 2, 2, 1, with(two, with(sequence, half)), with(large, {"moe.top_k=4"}), ""},
      {"small experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, with(sequence, distributed)), small, ""},
      {"small experts, expert 4, zero bubble", 1, 4, 2, with(four, zero), small, ""},
      {"small experts, tensor 4", 4, 1, 1, {}, small, ""},
      {"small experts, recompute", 1, 2, 2, with(two, full), small, ""},
      {"shared experts, tensor 4", 4, 1, 1, {}, shared, ""},
      {"shared experts, expert 4, distributed", 1, 4, 1, with(four, distributed), shared, ""},
      {"shared experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), shared, ""},
      {"shared experts, 2 x 2 x 2, expert 2, recompute", 2, 2, 2, with(two, with(sequence, full)), shared,
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
      {"residual experts, recompute, micro-batch 2", 1, 2, 2, with(two, with(full, {"train.micro_batch_size=2"})),
       residual, ""},
      {"all experts and shared ones, bf16", 2, 2, 1, with(two, with(sequence, half)),
       with(large, {"moe.top_k=4", "moe.shared_experts=1", "moe.shared_gate=true"}), ""},
      // With the default seed, rounding in the gradient of one mixture bias (2 numbers, terms of both signs) is 9e-5.
      {"T5 with residual experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence),
       with(t5, {"moe.residual=true", "moe.jitter=0.1", "train.seed=5"}), ""},
      {"BERT with shared experts, zero bubble", 1, 2, 2, with(two, zero),
       with(bert, {"moe.shared_experts=1", "moe.shared_gate=true", "moe.jitter=0.1"}), ""},
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
      {"dropless, interleaved, expert 2", 1, 2, 2, with(smallest, with(two, kTwoChunks)), every, ""},
      {"dropless, micro-batch 2, expert 2", 1, 2, 1, with(two, {"train.micro_batch_size=2"}), every, ""},
      {"dropless, all experts, bf16", 2, 2, 1, with(two, with(sequence, half)), with(every, {"moe.top_k=4"}), ""},
      {"dropless, small experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(smallest, with(two, sequence)), small_dropless,
       ""},
      {"dropless, small experts, expert 4, zero bubble", 1, 4, 2, with(smallest, with(four, zero)), small_dropless, ""},
      {"dropless, small experts, recompute", 1, 2, 2, with(smallest, with(two, full)), small_dropless, ""},
      {"T5 without drops, 2 x 2 x 2, expert 2", 2, 2, 2, with(smallest, with(two, sequence)), dropless(t5), ""},
      {"BERT with experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), bert, ""},
      {"BERT with experts, zero bubble", 1, 2, 2, with(two, zero), bert, ""},
      {"T5 with experts, 2 x 2 x 2, expert 2", 2, 2, 2, with(two, sequence), t5, ""},
      {"T5 with experts, interleaved", 1, 2, 2, with(two, kTwoChunks), t5, ""},
  };
}

}  // namespace megatron::test
