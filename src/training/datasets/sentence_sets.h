// SentenceSets: samples of token sets for families whose samples are made of whole sentences (family_samples.h). Reads
// where the sentences of a set begin, once, and owns that: 8 bytes a sentence on every rank. Knows neither blends nor
// how data is split.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "config/schema/config.h"
#include "training/datasets/family_samples.h"
#include "training/datasets/split_part.h"

namespace megatron {

class SentenceSets {
 public:
  explicit SentenceSets(const Config& config) : config_(config) {}

  /// Number of samples of one pass over the part's documents; may be 0. ErrorKind::data, naming the set, if it does not
  /// know sentences, or its vocabulary lacks what the family needs: both say how to make it again.
  std::uint64_t samples_of_a_pass(const SplitPart& part);
  /// These samples, of which there must be one. The part's set and this must outlive them.
  std::unique_ptr<Samples> make(const SplitPart& part, SentenceOrder order, std::uint64_t wanted);

 private:
  struct Starts {
    std::vector<std::uint64_t> sentences, documents;  // first tokens; numbers of first sentences
  };
  SentenceInputs inputs_of(const SplitPart& part);

  Config config_;
  std::map<const TokenDataset*, Starts> starts_;
};

}  // namespace megatron
