// Rows of what is learned from, and by which rule: batches, sequences, documents, losses, the optimizer.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> rules() {
  const std::vector<std::string> sgd = {"optimizer.name=sgd", "learning_rate.peak=0.1"};
  // Another rule, a layer that stays as it is, biases that decay, matrices of one part.
  const std::vector<std::string> groups = {
      "optimizer.groups=[{roles=[\"embedding\"], name=\"sgd\", learning_rate_factor=30.0, momentum=0.5},"
      "{names=[\"layers.1.*\"], learning_rate_factor=0.0}, {roles=[\"vector\", \"norm\"], weight_decay=0.2},"
      "{names=[\"layers.*.mlp.*\"], learning_rate_factor=0.5, betas=[0.8, 0.9], epsilon=1e-6}]"};
  const std::vector<std::string> lion = {"optimizer.name=lion", "optimizer.betas=[0.9, 0.99]",
                                         "learning_rate.peak=1e-4"};
  const std::vector<std::string> narrow = {"optimizer.moments_dtype=bf16"};
  return {
      {"sgd, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, sgd, ""},
      {"sgd, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       sgd,
       "sgd, 2 x 2 x 2"},
      {"sgd without momentum", 1, 4, 1, {"optimizer.share=state"}, with(sgd, {"optimizer.momentum=0"}), ""},
      {"lion, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, lion, ""},
      {"lion, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       lion,
       "lion, 2 x 2 x 2"},
      {"lion, 1 x 2 x 4, zero bubble", 1, 2, 4, {"parallel.schedule=zero_bubble"}, lion, ""},
      {"muon, tensor 4", 4, 1, 1, {}, kMuon, ""},
      {"muon, data 4", 1, 4, 1, {}, kMuon, ""},
      {"muon, data 4, distributed", 1, 4, 1, {"optimizer.share=state"}, kMuon, "muon, data 4"},
      {"muon, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, kMuon, ""},
      {"muon, 2 x 2 x 2, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       kMuon,
       "muon, 2 x 2 x 2"},
      {"muon, shared keys, tensor 4", 4, 2, 1, {"optimizer.share=state"}, with(kMuon, kLlama), ""},
      {"muon, one group, tensor 4", 4, 1, 2, kTwoChunks, with(kMuon, kOneGroup), ""},
      {"muon, like AdamW, pipeline 4",
       1,
       2,
       4,
       {"parallel.schedule=zero_bubble", "optimizer.share=state"},
       {"optimizer.name=muon", "optimizer.muon_scale=match_adam_rms", "optimizer.nesterov=false"},
       ""},
      {"muon, bf16", 2, 2, 2, {"precision.compute=bf16", "optimizer.share=state"}, kMuon, ""},
      {"muon, BERT", 2, 2, 2, {"parallel.sequence_parallel=true"}, with(kMuon, {"model.family=bert"}), ""},
      {"muon, experts",
       2,
       4,
       1,
       {"parallel.sequence_parallel=true", "parallel.expert=2", "optimizer.share=state"},
       with(kMuon, {"moe.experts=4", "moe.top_k=4", "moe.every=2", "moe.ffn_hidden_size=32"}),
       ""},
      {"groups, data 4", 1, 4, 1, {}, groups, ""},
      {"groups, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, groups, ""},
      {"groups, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       groups,
       "groups, 2 x 2 x 2"},
      {"groups, interleaved, distributed", 1, 2, 4, with(kTwoChunks, {"optimizer.share=state"}), groups, ""},
      {"bf16 moments, data 4", 1, 4, 1, {}, narrow, ""},
      {"bf16 moments, 2 x 2 x 2", 2, 2, 2, {"parallel.sequence_parallel=true"}, narrow, ""},
      {"bf16 moments, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       narrow,
       "bf16 moments, 2 x 2 x 2"},
      {"bf16 moments, interleaved", 1, 2, 4, with(kTwoChunks, {"optimizer.share=state"}), narrow, ""},
      {"bf16 moments and compute", 2, 2, 2, {"precision.compute=bf16", "optimizer.share=state"}, narrow, ""},
      {"bf16 moments, experts",
       2,
       4,
       1,
       {"parallel.sequence_parallel=true", "parallel.expert=2", "optimizer.share=state"},
       with(narrow, {"moe.experts=4", "moe.top_k=4", "moe.every=2", "moe.ffn_hidden_size=32"}),
       ""},
      {"bf16 moments, sgd", 2, 2, 2, {"optimizer.share=state"}, with(sgd, narrow), ""},
      {"bf16 moments, lion", 1, 4, 1, {"optimizer.share=state"}, with(lion, narrow), ""},
      {"bf16 moments, muon", 2, 2, 2, {"parallel.sequence_parallel=true"}, with(kMuon, narrow), ""},
      {"bf16 moments, muon, distributed",
       2,
       2,
       2,
       {"parallel.sequence_parallel=true", "optimizer.share=state"},
       with(kMuon, narrow),
       "bf16 moments, muon"},
      {"bf16 moments, groups", 1, 4, 1, {"optimizer.share=state"}, with(groups, narrow), ""},
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
  // Turned by positions in the document, scores that fall with the distance in it, keys that ranks share.
  const std::vector<std::string> llama = with(all, kLlama), alibi = with(all, kOneGroup);
  const std::vector<std::string> groups = with(all, {"model.query_groups=2"});
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  return {
      {"documents", 1, 1, 1, {}, all, ""},
      {"documents, recompute", 1, 1, 1, {"recompute.mode=full"}, all, "documents"},
      {"documents, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, all, ""},
      {"documents, tensor 4", 4, 1, 1, {"parallel.sequence_parallel=true"}, all, ""},
      {"documents, data 3", 1, 3, 1, {"train.micro_batch_size=2", "optimizer.share=state"}, all, ""},
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
      {"documents, Llama, 4 x 1 x 2", 4, 1, 2, sequence, llama, ""},
      {"documents, Llama, recompute", 4, 1, 2, with(sequence, {"recompute.mode=full"}), llama,
       "documents, Llama, 4 x 1 x 2"},
      {"documents, Llama, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, llama, ""},
      {"documents, Llama, interleaved", 1, 2, 2, kTwoChunks, with(llama, {curriculum}), ""},
      {"documents, rope, masks alone",
       2,
       1,
       1,
       {},
       {few, "data.reset_attention_mask=true", "model.position_embedding=rope"},
       ""},
      {"documents, rope, positions alone",
       2,
       2,
       1,
       {"train.micro_batch_size=3"},
       {few, "data.reset_position_ids=true", "model.position_embedding=rope"},
       ""},
      {"documents, ALiBi, one group, 2 x 2 x 2", 2, 2, 2, {"train.micro_batch_size=3"}, alibi, ""},
      {"documents, ALiBi, one group, zero bubble",
       2,
       2,
       2,
       {"train.micro_batch_size=3", "parallel.schedule=zero_bubble"},
       alibi,
       "documents, ALiBi, one group, 2 x 2 x 2"},
      {"documents, ALiBi, one group, tensor 4", 4, 1, 1, sequence, alibi, ""},
      {"documents, two groups, 4 x 2 x 1", 4, 2, 1, with(sequence, {"optimizer.share=state"}), groups, ""},
      {"documents, two groups, recompute", 4, 2, 1, with(sequence, {"recompute.mode=full"}), groups,
       "documents, two groups, 4 x 2 x 1"},
      {"document masks alone", 1, 1, 4, {}, {few, "data.reset_attention_mask=true"}, ""},
      {"document positions alone", 2, 2, 1, {}, {few, "data.reset_position_ids=true"}, ""},
      {"masked losses alone", 1, 2, 2, {"train.micro_batch_size=2"}, {few, "data.eod_mask_loss=true"}, ""},
  };
}

std::vector<Row> instructions() {
  // One token in ten ends an example, and a third of the others is not learned.
  const std::vector<std::string> packed = {"model.vocab_size=10", "task.name=instructions"};
  const std::vector<std::string> sequence = {"train.micro_batch_size=3", "parallel.sequence_parallel=true"};
  const std::vector<std::string> llama = with(packed, kLlama), alibi = with(packed, kOneGroup);
  return {
      {"instructions, micro-batch 4", 1, 1, 1, {"train.micro_batch_size=4"}, packed, ""},
      {"instructions, data 3", 1, 3, 1, {"train.micro_batch_size=2", "optimizer.share=state"}, packed, ""},
      {"instructions, pipeline 8", 1, 1, 8, {}, packed, ""},
      {"instructions, 2 x 2 x 2", 2, 2, 2, sequence, packed, ""},
      {"instructions, recompute", 2, 2, 2, with(sequence, {"recompute.mode=full"}), packed, "instructions, 2 x 2 x 2"},
      {"instructions, zero bubble", 2, 2, 2, with(sequence, {"parallel.schedule=zero_bubble"}), packed,
       "instructions, 2 x 2 x 2"},
      {"instructions, bf16", 2, 2, 1, {"precision.compute=bf16"}, packed, ""},
      {"instructions, Llama, interleaved", 1, 2, 2, kTwoChunks, llama, ""},
      {"instructions, ALiBi, tensor 4", 4, 1, 1, {"parallel.sequence_parallel=true"}, alibi, ""},
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

}  // namespace megatron::test
