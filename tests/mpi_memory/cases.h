// Layouts and options on four ranks, for what is counted on real ranks.
#pragma once

#include "support/tiny_training.h"
#include "training/step/grid.h"

namespace megatron::test {

struct Case {
  const char* name;
  int tensor, data, pipeline;
  void (*change)(Config&);

  Config config() const {
    Config config = tiny_config();
    config.parallel.tensor = tensor;
    config.parallel.data = data;
    config.parallel.pipeline = pipeline;
    change(config);
    return config;
  }
};

// Large enough that sums go in several chunks, and in several buckets.
inline void wide(Config& config) {
  config.model.hidden_size = 512;
  config.model.ffn_hidden_size = 2048;
  config.model.sequence_length = config.model.max_position_embeddings = 64;
}

inline const Case kCases[] = {
    {"data 4", 1, 4, 1, [](Config&) {}},
    {"data 4, wide, overlapping", 1, 4, 1,
     [](Config& config) {
       wide(config);
       config.parallel.overlap_gradients = true;
     }},
    {"tensor 4", 4, 1, 1, [](Config& config) { config.train.micro_batch_size = 4; }},
    {"tensor 2, data 2, sequence, wide", 2, 2, 1,
     [](Config& config) {
       wide(config);
       config.parallel.sequence_parallel = true;
       config.train.micro_batch_size = 2;
     }},
    {"tensor 2, pipeline 2, sequence, recompute", 2, 1, 2,
     [](Config& config) {
       config.parallel.sequence_parallel = true;
       config.recompute = {"full", 1};
     }},
    {"data 2, pipeline 2, gpipe", 1, 2, 2, [](Config& config) { config.parallel.schedule = "gpipe"; }},
    {"pipeline 4", 1, 1, 4, [](Config&) {}},
    {"data 4, wide, distributed optimizer", 1, 4, 1,
     [](Config& config) {
       wide(config);
       config.optimizer.share = "state";
       config.parallel.overlap_gradients = true;
     }},
    {"tensor 2, data 2, sequence, distributed optimizer", 2, 2, 1,
     [](Config& config) {
       config.parallel.sequence_parallel = true;
       config.optimizer.share = "state";
     }},
    // The shorter sequences' sums go whole, which needs more than the cut ones of the full length.
    {"tensor 4, curriculum", 4, 1, 1,
     [](Config& config) {
       wide(config);
       config.model.sequence_length = config.model.max_position_embeddings = 16;
       config.train.curriculum = {"fixed_discrete", 0, 0, 1, 1, {8, 16}, {1}};
     }},
    {"tensor 2, data 2, sequence, curriculum, bf16", 2, 2, 1,
     [](Config& config) {
       wide(config);
       config.parallel.sequence_parallel = true;
       config.optimizer.share = "state";
       config.precision.compute = "bf16";
       config.train.curriculum = {"fixed_discrete", 0, 0, 1, 1, {6, 64}, {1}};
     }},
    {"tensor 2, pipeline 2, curriculum, fp16", 2, 1, 2,
     [](Config& config) {
       config.precision.compute = "fp16";
       config.recompute = {"full", 1};
       config.train.curriculum = {"fixed_discrete", 0, 0, 1, 1, {5, 16}, {1}};
     }},
    {"data 2, pipeline 2, zero bubble", 1, 2, 2, [](Config& config) { config.parallel.schedule = "zero_bubble"; }},
    {"data 2, pipeline 2, interleaved", 1, 2, 2,
     [](Config& config) {
       config.parallel.schedule = "interleaved";
       config.parallel.virtual_stages = 2;
     }},
    {"tensor 4, sequence, Llama", 4, 1, 1,
     [](Config& config) {
       like_llama(config.model);
       config.parallel.sequence_parallel = true;
     }},
    // The data ranks own other parts of the keys that the tensor ranks share.
    {"tensor 2, data 2, wide, one group, distributed optimizer", 2, 2, 1,
     [](Config& config) {
       wide(config);
       with_one_group(config.model);
       config.optimizer.share = "state";
     }},
    {"tensor 2, pipeline 2, zero bubble, one group", 2, 1, 2,
     [](Config& config) {
       with_one_group(config.model);
       config.parallel.schedule = "zero_bubble";
     }},
    {"tensor 4, recompute, norms of heads", 4, 1, 1,
     [](Config& config) {
       with_normed_heads(config.model);
       config.recompute = {"full"};
     }},
};

}  // namespace megatron::test
