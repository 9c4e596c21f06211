// SentenceMap: which sentences the i-th sample of a run is made of, for models that read whole sentences (BERT, T5).
// A pure function of what it was made with; 8 bytes per sample, built when the first sample is asked for.
//
// A sample begins where its predecessor in the document ended and takes sentences until they have `target` tokens; of a
// document's sentences never one alone is left. Most samples have the target most_tokens, some a shorter one.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/shards/token_dataset.h"

namespace megatron {

/// Document d is the sentences [documents[d], documents[d + 1]), and sentence i the tokens [sentences[i],
/// sentences[i + 1]) of `tokens`. Both kinds may be empty. What it shows must outlive it.
struct SentenceCorpus {
  TokenSource* tokens = nullptr;
  std::span<const std::uint64_t> sentences, documents;
};

enum class SentenceOrder {
  megatron,    ///< that of Megatron-LM of 2022 and of megatron-core, see sentence_map.cpp
  shuffled,    ///< every pass visits all samples once, in an order that depends on (seed, pass) alone
  sequential,  ///< for evaluation: as the documents come
};

struct SentenceMapOptions {
  std::uint64_t first_document = 0, end_document = 0;
  std::int64_t most_tokens = 0;        ///< in a sample, without the special tokens that frame it; at least 2
  std::uint64_t fewest_sentences = 1;  ///< in a sample; documents with fewer have none
  double short_probability = 0.1;
  SentenceOrder order = SentenceOrder::shuffled;
  std::uint64_t seed = 0;
  std::uint64_t wanted_samples = 0;  ///< SentenceOrder::megatron makes whole passes until it has them
};

/// Thread-safe.
class SentenceMap {
 public:
  /// Counts the samples. ErrorKind::data if there are none but some are wanted, or more than 2^36 are.
  SentenceMap(const SentenceCorpus& corpus, const SentenceMapOptions& options);
  /// Samples of the first pass, whatever is wanted; 0 is no error.
  static std::uint64_t samples_of_a_pass(const SentenceCorpus& corpus, SentenceMapOptions options);

  /// Samples in a pass; with SentenceOrder::megatron in the run, at least the wanted ones.
  std::uint64_t samples() const { return samples_; }
  std::uint64_t passes() const { return passes_; }
  std::string description() const;

  /// Sentences [first, end), of which a sample may use `target` tokens.
  struct Entry {
    std::uint64_t first = 0, end = 0;
    std::int64_t target = 0;
    bool operator==(const Entry&) const = default;
  };
  /// Samples are numbered over the whole run. SentenceOrder::megatron: there are samples(), and asking for more is
  /// ErrorKind::configuration.
  Entry at(std::uint64_t sample) const;

 private:
  template <class Targets, class Visit>
  void visit_pass(const Targets& targets, const Visit& visit) const;
  bool makes_samples(std::uint64_t document) const;
  std::uint64_t end_of_sample(std::uint64_t first, std::int64_t target, std::uint64_t document_end) const;
  void count();
  void require_samples() const;
  struct Counted {};
  SentenceMap(const SentenceCorpus& corpus, const SentenceMapOptions& options, Counted);
  void build() const;
  std::uint64_t place_of(std::uint64_t sample) const;

  SentenceCorpus corpus_;
  SentenceMapOptions options_;
  std::uint64_t samples_ = 0, passes_ = 1;
  mutable std::once_flag built_;
  mutable std::vector<std::uint64_t> entries_;  // first sentence and target; the end follows from them
};

}  // namespace megatron
