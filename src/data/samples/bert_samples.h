// BertSamples: samples for BERT. A sample is [CLS] A [SEP] B [SEP], where A and B are neighbouring sentences of a
// document, in half of the samples in the other order; a part of its words is masked. Without sentence order it is
// [CLS] A [SEP]. A pure function of the sample's number; SentenceMap says which sentences, word_masking.h which masks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/samples/samples.h"
#include "data/samples/sentence_map.h"
#include "data/samples/word_masking.h"

namespace megatron {

/// One sample; all but the last three have sequence_length elements.
struct BertSample {
  std::vector<std::int32_t> tokens;   ///< padded
  std::vector<std::int32_t> types;    ///< 1 for B and its [SEP], else 0
  std::vector<std::int32_t> targets;  ///< the masked token where one is masked, else 0
  std::vector<float> weights;         ///< 1 where a token is masked, else 0
  std::int32_t length = 0;            ///< without padding
  std::int32_t label = -1;            ///< 1: B was before A in the document; 0: after it; -1: not asked for
  bool truncated = false;             ///< the sentences were longer than the sample's target
};

struct BertSampleOptions {
  std::uint64_t first_document = 0, end_document = 0;
  std::int64_t sequence_length = 0;
  bool sentence_order = true;
  double mask_probability = 0.15, short_probability = 0.1;
  SentenceOrder order = SentenceOrder::shuffled;
  std::uint64_t seed = 0;
  std::uint64_t wanted_samples = 0;  ///< SentenceOrder::megatron
};

class BertSamples final : public Samples {
 public:
  /// Vocabulary and corpus show what must outlive it. ErrorKind::configuration if the sequence is too short for two
  /// tokens, ErrorKind::data if the vocabulary lacks a special token or there are no samples.
  BertSamples(const SentenceCorpus& corpus, const MaskedVocabulary& vocabulary, const BertSampleOptions& options);
  /// As samples(), of the first pass alone whatever the order and what is wanted; 0 is no error here.
  static std::uint64_t samples_of_a_pass(const SentenceCorpus& corpus, const BertSampleOptions& options);

  std::uint64_t samples() const override { return map_.samples(); }
  std::string description() const override { return map_.description(); }
  const SentenceMap& map() const { return map_; }
  BertSample make(std::uint64_t sample) const;

  /// Masked tokens, and with sentence order the samples that have a label.
  std::size_t terms() const override { return options_.sentence_order ? 2 : 1; }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return std::nullopt; }
  /// The sample without padding, what it says of its tokens, and the places where tokens are masked with these.
  std::vector<NamedTokens> show(std::uint64_t sample) override;

 private:
  BertSample make(const SentenceMap::Entry& entry, SampleDraws& draws) const;

  SentenceCorpus corpus_;
  MaskedVocabulary vocabulary_;
  BertSampleOptions options_;
  SentenceMap map_;
};

}  // namespace megatron
