// Models of given sizes, with keys' defaults for all else.
#pragma once

#include "config/schema/config.h"

namespace megatron::test {

struct ModelSizes {
  std::int64_t layers, hidden, heads, ffn, sequence;
  std::int64_t vocabulary = 50, vocabulary_multiple = 64;
};

inline ModelConfig model_of(const ModelSizes& sizes) {
  ModelConfig model;
  model.layers = sizes.layers;
  model.hidden_size = sizes.hidden;
  model.attention_heads = model.query_groups = sizes.heads;
  model.ffn_hidden_size = sizes.ffn;
  model.sequence_length = model.max_position_embeddings = sizes.sequence;
  model.vocab_size = sizes.vocabulary;
  model.vocab_multiple = sizes.vocabulary_multiple;
  return model;
}

}  // namespace megatron::test
