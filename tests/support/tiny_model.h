// Models of benchmarks, cut down until a step takes milliseconds.
#pragma once

#include "config/schema/config.h"

namespace megatron::test {

inline void cut_down(ModelConfig& model, std::int64_t sequence) {
  model.layers = 2;
  model.hidden_size = 64;
  model.attention_heads = model.query_groups = 4;
  model.ffn_hidden_size = 200;
  if (model.moe.experts > 0) model.moe.ffn_hidden_size = 96;
  model.sequence_length = model.max_position_embeddings = sequence;
  if (model.has_decoder()) {
    model.decoder_layers = 3;
    model.decoder_sequence_length = 12;
  }
  model.vocab_size = 200;  // padded to 256
}

}  // namespace megatron::test
