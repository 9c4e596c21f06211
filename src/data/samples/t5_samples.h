// T5Samples: samples for T5. Of a text, some spans of whole words are taken out, and a sentinel is put in the place of
// each: that is what the encoder reads. The decoder learns to write each sentinel followed by what was there. A pure
// function of the sample's number; SentenceMap says which sentences, word_masking.h which spans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/samples/samples.h"
#include "data/samples/sentence_map.h"
#include "data/samples/word_masking.h"

namespace megatron {

struct T5Sample {
  std::vector<std::int32_t> encoder_tokens;  ///< [sequence_length], padded
  std::vector<std::int32_t> tokens;          ///< [decoder_length], padded: bos, then what the decoder has written
  std::vector<std::int32_t> targets;         ///< [decoder_length]: the same one place earlier, eos at the end; then 0
  std::vector<float> weights;                ///< [decoder_length]: 1 where there is a target, else 0
  std::int32_t encoder_length = 0, length = 0;  ///< without padding
  bool truncated = false;                       ///< the sentences were longer than the sample's target
};

struct T5SampleOptions {
  std::uint64_t first_document = 0, end_document = 0;
  std::int64_t sequence_length = 0, decoder_length = 0;
  double mask_probability = 0.15, short_probability = 0.1;
  SentenceOrder order = SentenceOrder::shuffled;
  std::uint64_t seed = 0;
  std::uint64_t wanted_samples = 0;  ///< SentenceOrder::megatron
};

/// Spans and tokens that masks take if nothing has to be left out.
struct T5Needs {
  double mean_spans = 0;
  std::uint64_t most_spans = 0;
  std::uint64_t most_tokens = 0;  ///< in the decoder: spans and their tokens, and bos or eos
};

class T5Samples final : public Samples {
 public:
  /// Vocabulary and corpus show what must outlive it. ErrorKind::configuration if a sequence is too short,
  /// ErrorKind::data if the vocabulary lacks a special token or there are no samples.
  T5Samples(const SentenceCorpus& corpus, const MaskedVocabulary& vocabulary, const T5SampleOptions& options);

  /// As samples(), of the first pass alone whatever the order and what is wanted; 0 is no error here.
  static std::uint64_t samples_of_a_pass(const SentenceCorpus& corpus, const T5SampleOptions& options);

  std::uint64_t samples() const override { return map_.samples(); }
  std::string description() const override { return map_.description(); }
  const SentenceMap& map() const { return map_; }
  /// A sample whose spans do not fit the decoder or need more sentinels than there are is ErrorKind::configuration with
  /// SentenceOrder::megatron, as in Megatron. The other orders leave spans out.
  T5Sample make(std::uint64_t sample) const;
  /// Needs of `most` samples evenly spread over all, or of all.
  T5Needs needs(std::uint64_t most) const;

  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return std::nullopt; }
  /// Tokens that the encoder reads, that the decoder reads, and that it is to write, without padding.
  std::vector<NamedTokens> show(std::uint64_t sample) override;

 private:
  struct Text;
  Text text_of(const SentenceMap::Entry& entry) const;
  /// Calls take as choose_spans() does.
  void visit_spans(std::uint64_t sample, const SentenceMap::Entry& entry, const Text& text, const TakeSpan& take) const;

  SentenceCorpus corpus_;
  MaskedVocabulary vocabulary_;
  T5SampleOptions options_;
  SentenceMap map_;
};

}  // namespace megatron
