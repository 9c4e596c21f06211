// Shards for runs of the tiny model: 60 documents of 11 to 70 tokens, vocabulary 50.
#pragma once

#include "data/data_support.h"
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

}  // namespace megatron::test
