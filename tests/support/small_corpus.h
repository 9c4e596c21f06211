// Shards for runs of the tiny model: 60 documents of 11 to 70 tokens, vocabulary 50.
#pragma once

#include "support/data_support.h"
#include "support/tiny_training.h"

namespace megatron::test {

/// Written below the folder; returns what data.train is to name.
inline std::string make_corpus(const ShardFolder& folder) {
  Documents documents;
  for (int i = 0; i < 60; ++i) {
    documents.emplace_back();
    for (int j = 0; j < 10 + i; ++j) documents.back().push_back(TinyBatches::token(i, j, 7, 49));
    documents.back().push_back(49);
  }
  make_shard(folder.file("corpus"), documents, 0, 1, small_vocabulary(50));
  return folder.file("corpus");
}

/// The tiny model on that corpus for four steps, on these ranks and as many data ranks as there are more.
inline Config small_run(const ShardFolder& folder, int tensor, int pipeline) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = 4;
  config.parallel.data = 0;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  return config;
}

}  // namespace megatron::test
