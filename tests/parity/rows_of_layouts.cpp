// Rows of how a run is laid out and played: grids, schedules, recomputation, the optimizer's shards, precision.
#include "parity/subjects.h"

namespace megatron::test {

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

std::vector<Row> gradient_reducer() {
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
  // Reductions are in rank order, whichever rank keeps the sum: the same bits.
  return {
      {"distributed", 1, 2, 1, {"optimizer.share=state"}, {}, "data 2"},
      {"distributed, data 3", 1, 3, 1, {"optimizer.share=state"}, {}, "data 3"},
      {"distributed, data 4", 1, 4, 1, {"optimizer.share=state"}, {}, "data 4"},
      {"distributed, one rank", 1, 1, 1, {"optimizer.share=state"}, {}, "one rank"},
      {"distributed, overlap", 1, 2, 1, {"optimizer.share=state", "parallel.overlap_gradients=true"}, {}, "data 2"},
      {"data 2, pipeline 3", 1, 2, 3, {"parallel.layers_per_stage=[3, 3, 2]"}, {}, ""},
      {"distributed, data 2, pipeline 3",
       1,
       2,
       3,
       {"optimizer.share=state", "parallel.layers_per_stage=[3, 3, 2]"},
       {},
       "data 2, pipeline 3"},
      {"distributed, 2 x 2 x 2", 2, 2, 2, {"optimizer.share=state"}, {}, "2 x 2 x 2"},
      {"distributed, sequence, 2 x 2 x 2",
       2,
       2,
       2,
       {"optimizer.share=state", "parallel.sequence_parallel=true"},
       {},
       "sequence, 2 x 2 x 2"},
      {"distributed, interleaved, sequence",
       2,
       2,
       2,
       with(kTwoChunks,
            {"parallel.sequence_parallel=true", "optimizer.share=state", "parallel.overlap_gradients=true"}),
       {},
       "interleaved, sequence"},
  };
}

std::vector<Row> recomputation() {
  const std::vector<std::string> sequence = {"parallel.sequence_parallel=true"};
  const std::vector<std::string> zero = {"parallel.schedule=zero_bubble"};
  return {
      {"recompute", 1, 1, 1, {"recompute.mode=full"}, {}, "one rank"},
      {"recompute 3 layers", 1, 1, 1, {"recompute.mode=full", "recompute.layers=3"}, {}, "one rank"},
      {"selective", 1, 1, 1, {"recompute.mode=selective"}, {}, "one rank"},
      {"norms again", 1, 1, 1, kNormsAgain, {}, "one rank"},
      {"activations again", 1, 1, 1, kActivationsAgain, {}, "one rank"},
      {"feed-forward again", 1, 1, 1, kFeedForwardAgain, {}, "one rank"},
      {"most again", 1, 1, 1, kMostAgain, {}, "one rank"},
      {"most again, tensor 2", 2, 1, 1, kMostAgain, {}, "tensor 2"},
      {"norms again, sequence", 2, 2, 2, with(sequence, kNormsAgain), {}, "sequence, 2 x 2 x 2"},
      {"activations again, sequence", 2, 2, 2, with(sequence, kActivationsAgain), {}, "sequence, 2 x 2 x 2"},
      {"feed-forward again, sequence", 2, 2, 2, with(sequence, kFeedForwardAgain), {}, "sequence, 2 x 2 x 2"},
      {"selective, sequence, overlap",
       2,
       2,
       2,
       with(sequence, {"recompute.mode=selective", "parallel.overlap_gradients=true"}),
       {},
       "sequence, 2 x 2 x 2"},
      {"most again, gpipe", 1, 1, 4, with(kMostAgain, {"parallel.schedule=gpipe"}), {}, "pipeline 4"},
      {"most again, interleaved", 1, 1, 2, with(kTwoChunks, kMostAgain), {}, "interleaved"},
      {"norms again, zero bubble", 1, 1, 2, with(zero, kNormsAgain), {}, "pipeline 2"},
      {"activations again, zero bubble", 2, 2, 2, with(zero, kActivationsAgain), {}, "2 x 2 x 2"},
      {"feed-forward again, zero bubble", 1, 1, 4, with(zero, kFeedForwardAgain), {}, "pipeline 4"},
      {"most again, sequence, zero bubble", 2, 2, 2, with(with(sequence, zero), kMostAgain), {}, "sequence, 2 x 2 x 2"},
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
      {"fp16, interleaved, distributed", 1, 2, 4, with(with(fp16, kTwoChunks), {"optimizer.share=state"}), {}, ""},
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
      {"bf16, sequence, selective",
       2,
       2,
       2,
       with(bf16_sequence, {"recompute.mode=selective"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, sequence, zero bubble, most again",
       2,
       2,
       2,
       with(with(bf16_sequence, {"parallel.schedule=zero_bubble"}), kMostAgain),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, sequence, distributed",
       2,
       2,
       2,
       with(bf16_sequence, {"optimizer.share=state", "parallel.overlap_gradients=true"}),
       {},
       "bf16, sequence, 2 x 2 x 2"},
      {"bf16, interleaved", 1, 2, 4, with(bf16, kTwoChunks), {}, ""},
      {"bf16, interleaved, distributed",
       1,
       2,
       4,
       with(with(bf16, kTwoChunks), {"optimizer.share=state"}),
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

}  // namespace megatron::test
