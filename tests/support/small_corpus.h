// Shards for runs of tiny models: 60 documents, vocabulary 50; of tokens in a row, or of sentences.
#pragma once

#include "support/data_support.h"
#include "support/tiny_training.h"

namespace megatron::test {

/// Documents of 11 to 70 tokens below the folder, 60 of them `rounds` times; returns what data.train is to name.
inline std::string make_corpus(const ShardFolder& folder, int rounds = 1) {
  Documents documents;
  for (int i = 0; i < 60 * rounds; ++i) {
    documents.emplace_back();
    for (int j = 0; j < 10 + i % 60; ++j) documents.back().push_back(TinyBatches::token(i, j, 7, 49));
    documents.back().push_back(49);
  }
  const std::string prefix = folder.file(rounds == 1 ? "corpus" : "large_corpus");
  make_shard(prefix, documents, 0, 1, small_vocabulary(50));
  return prefix;
}

/// The same for encoders: documents of 2 to 7 sentences of 2 to 6 tokens, of which some continue a word.
inline std::string make_sentence_corpus(const ShardFolder& folder) {
  constexpr std::uint64_t kSize = 50, kFirstPiece = 40;
  constexpr std::int32_t kFirstWord = 12;
  Vocabulary vocabulary{"bert-uncased", 11, kSize, 1};
  vocabulary.special = {
      .cls = 2, .sep = 3, .mask = 4, .pad = 0, .bos = 5, .eos = 1, .first_sentinel = 6, .sentinels = 6};
  vocabulary.continues.assign(kSize, 0);
  std::fill(vocabulary.continues.begin() + kFirstPiece, vocabulary.continues.end(), 1);
  TokenShardWriter writer(folder.file("sentences.tmp"), vocabulary, Sentences::kept);
  for (int i = 0; i < 60; ++i) {
    std::vector<std::uint64_t> sentences;
    std::vector<std::int32_t> tokens;
    for (int j = 0; j < 2 + i % 6; ++j) {
      sentences.push_back(static_cast<std::uint64_t>(2 + TinyBatches::token(i, j, 8, 5)));
      for (std::uint64_t k = 0; k < sentences.back(); ++k) {
        tokens.push_back(kFirstWord + TinyBatches::token(i, j, 9 + static_cast<std::int64_t>(k), kSize - kFirstWord));
      }
    }
    writer.add_document(tokens, sentences);
  }
  writer.finish();
  publish_shard(folder.file("sentences.tmp"), folder.file("sentences"), 0, 1, 99);
  return folder.file("sentences");
}

/// The tiny model on the first corpus for four steps, on these ranks and as many data ranks as there are more.
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
